"""Messages per second for any time, from `topic_minutes` and `messages`, without Spark. `jobs` import it."""
