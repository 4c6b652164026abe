"""The parts of the story that `broker_lite.shop_traffic` writes: its cast, its messages, its events."""
