"""Parts of the generator `broker_lite.shop_traffic`: orders, messages and events of a small shop."""
