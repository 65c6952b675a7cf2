"""Documents from templates, with Salesforce records as the queue."""
