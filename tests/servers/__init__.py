"""Real servers for the tests, with their jars and processes, and the Java programs that use them."""
