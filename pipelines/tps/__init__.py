"""Messages per second for any time range, from `topic_minutes` and `messages`, without Spark. `jobs` import it."""
