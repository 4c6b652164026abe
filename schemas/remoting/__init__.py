"""What the frames of schemas.layouts.remoting mean: codes, headers, bodies, signatures. Standard library only."""
