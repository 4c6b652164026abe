"""`commitlake catalog`: register a lake in Unity Catalog."""
