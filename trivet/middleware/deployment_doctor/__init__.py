"""`trivet doctor`: looks at a deployment and says what to mend.

`gather` collects facts, with a time limit each and nothing changed but a probe key in Redis;
`checks_*` make findings of them, without I/O.
"""
