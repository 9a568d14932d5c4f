"""A server of MCP over standard input and output with one tool, the weather, for agents to call."""
import json
import sys

TOOL = {"name": "get_weather", "description": "The weather of a city.",
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:  # a notification
        continue
    result = {}
    match message["method"]:
        case "initialize":
            result = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "weather", "version": "1"}}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": f"sunny in {message['params']['arguments'].get('city')}, 21 degrees"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
