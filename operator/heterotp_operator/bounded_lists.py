"""Pages of bounded length for the lists of kopf, which knows one number of objects per page for all kinds."""

from aiohttp import ClientHandlerType, ClientRequest, ClientResponse

from heterotp_operator.page_size import PageSize, read_page


class BoundedLists:
    """A middleware of kopf's HTTP session: it sets how many objects a list asks for; see page_size.py."""

    def __init__(self) -> None:
        self._sizes: dict[str, PageSize] = {}  # by path

    async def __call__(self, request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send a request; of a list ask for fewer objects until the answer is short enough."""
        if "limit" not in request.url.query:
            return await handler(request)
        size = self._sizes.setdefault(request.url.path, PageSize())
        while True:
            request.url = request.url.update_query(limit=size.objects)
            response = await handler(request)
            body = await read_page(response, size.most_bytes)
            if body is not None:
                size.was(len(body))
                response._body = body  # as its own read() leaves it: kopf reads it from there
                return response
            size.was_too_long()
