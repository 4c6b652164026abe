"""Remoting protocol: frames, request and response codes, headers, bodies, signatures. Standard library only."""
