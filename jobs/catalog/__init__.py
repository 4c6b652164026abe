"""The job `catalog`: a lake under a name of Unity Catalog."""
