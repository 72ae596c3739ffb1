"""A server of tools by stdio with nothing but the standard library. An argument makes it misbehave.

(none)    offers `add` and `read`, on two pages     dumb    never answers     dies    ends at once
"""

import json
import sys
import time

TOOLS = [
    {
        "name": "add",
        "description": "Adds two numbers.",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
    {"name": "read", "description": "Not a file.", "inputSchema": {"type": "object"}},
]


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {}}
    if method == "tools/list":
        return {"tools": TOOLS[1:]} if params.get("cursor") else {"tools": TOOLS[:1], "nextCursor": "more"}
    if method == "tools/call" and params["name"] == "add":
        numbers = params["arguments"].values()
        if not all(isinstance(number, int) for number in numbers):
            return {"content": [{"type": "text", "text": "Numbers, please."}], "isError": True}
        return {"content": [{"type": "text", "text": str(sum(numbers))}]}
    return {"content": [{"type": "text", "text": "A book."}]}


if "dies" in sys.argv:
    sys.exit("no luck")
for line in sys.stdin:
    message = json.loads(line)
    if "dumb" in sys.argv:
        time.sleep(1000)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
