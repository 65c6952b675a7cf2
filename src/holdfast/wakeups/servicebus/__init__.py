"""Wake-ups through Azure Service Bus: `servicebus://key-name:key@namespace.servicebus.windows.net/queue`

As a plain messenger, it takes each message off the queue as a hint. In broker-led mode, an escort
holds the message of a job while that runs here.
"""
