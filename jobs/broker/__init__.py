"""`commitlake broker`: run broker_lite and a name server."""
