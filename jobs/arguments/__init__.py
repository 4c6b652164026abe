"""Options that several commands share, and checks of the names and places that they give."""
