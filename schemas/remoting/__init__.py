"""What the frames of schemas.remoting.frames mean: codes, headers, bodies, signatures. Standard library only."""
