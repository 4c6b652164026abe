"""Real servers for the tests: their jars, their processes, the Java programs that talk to them."""
