"""The data plane's own HTTP/1.1 client: asyncio, llhttp, and a pool of kept connections.

It does what a proxy needs and no more: no redirects, no cookies, no content coding, no HTTP/2, and
no proxies from the environment (HTTP_PROXY and its like are not read).
"""
