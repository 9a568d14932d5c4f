"""Prompts with tools that may be called, and requests for one of them; few requests fit none."""
import questions

# Verb, noun, what the tool does, parameters: name, JSON schema, and what a request says of it. {…} are slots of
# questions.py.
TOOLS = [
    ("get", "weather", "Get the weather in a place for one day", [("place", "string", "{place}"), ("day", "string", "{day}"), ("units", ["metric", "imperial"], None)]),
    ("book", "table", "Book a table in a restaurant", [("name", "string", "{first} {last}"), ("guests", "integer", "{date}"), ("time", "string", "{hour}:{minute}")]),
    ("find", "trains", "Find trains between two places", [("origin", "string", "{place}"), ("day", "string", "{day}"), ("changes", "integer", None)]),
    ("send", "mail", "Send an e-mail to a person", [("to", "string", "{first} {last}"), ("subject", "string", "{project}"), ("urgent", "boolean", None)]),
    ("create", "ticket", "Create a ticket in the tracker of a project", [("project", "string", "{project}"), ("title", "string", "{thing}"), ("priority", ["low", "normal", "high"], None)]),
    ("read", "file", "Read lines of a file", [("path", "string", "/srv/{animal}/{n3}"), ("first_line", "integer", "{n2}"), ("count", "integer", None)]),
    ("write", "file", "Write a text to a file", [("path", "string", "/srv/{animal}/{n4}"), ("text", "string", "{food}"), ("append", "boolean", None)]),
    ("search", "code", "Search a repository for a regular expression", [("pattern", "string", "{project}_limit"), ("path", "string", None), ("ignore_case", "boolean", None)]),
    ("run", "command", "Run a command in a sandbox", [("command", "string", "make {animal}"), ("timeout_seconds", "integer", "{n3}")]),
    ("list", "invoices", "List invoices of a customer", [("customer", "string", "{first} {last}"), ("year", "integer", "{year}"), ("open_only", "boolean", None)]),
    ("pay", "invoice", "Pay an invoice", [("code", "string", "{code}"), ("amount", "number", "{n4}")]),
    ("order", "food", "Order a dish from the canteen", [("dish", "string", "{food}"), ("day", "string", "{day}"), ("portions", "integer", "{date}")]),
    ("convert", "currency", "Convert an amount of money", [("amount", "number", "{n4}"), ("source", ["EUR", "USD", "CZK", "NOK"], None), ("target", ["EUR", "USD", "CZK", "NOK"], None)]),
    ("set", "reminder", "Set a reminder", [("about", "string", "the {thing}"), ("month", "string", "{month}"), ("date", "integer", "{date}")]),
    ("add", "contact", "Add a person to the contacts", [("name", "string", "{first} {last}"), ("extension", "string", "{n4}"), ("job", "string", "{job}")]),
    ("translate", "text", "Translate a text", [("text", "string", "Where is the {animal}?"), ("language", ["de", "fr", "pt", "cs"], None)]),
    ("get", "stock", "Get how many pieces of an article there are", [("article", "string", "{thing}"), ("place", "string", "{place}")]),
    ("move", "shipment", "Change where a shipment goes", [("code", "string", "{code}"), ("place", "string", "{place}")]),
    ("query", "database", "Run a query in SQL, for reading alone", [("sql", "string", "SELECT name FROM {animal} WHERE id = {n4}"), ("limit", "integer", "{n2}")]),
    ("resize", "image", "Resize an image", [("path", "string", "{animal}.png"), ("width", "integer", "{n3}"), ("height", "integer", "{n3}")]),
    ("get", "profile", "Get what is known of a person", [("name", "string", "{first} {last}"), ("fields", "array", None)]),
    ("rename", "project", "Give a project another name", [("old", "string", "{project}"), ("new", "string", "{colour} {animal}")]),
    ("cancel", "booking", "Cancel a booking", [("code", "string", "{code}"), ("reason", "string", None)]),
    ("play", "music", "Play music in a room", [("title", "string", "the {colour} {thing}"), ("room", "string", "room {n3}"), ("volume", "integer", "{n2}")]),
]
KINDS = ("string", "integer", "number", "boolean", "array")
ABOUT = ["", " of this request", ", as the user has it", ", required by the service", ". Leave it out if it was not said", ", in the form that the service expects"]
ASKS = ["Please {does}: {details}.", "{details}. {Does}, please.", "Can you {does}? Use {details}.", "I need you to {does} with {details}.", "{Does} ({details})."]
NONE = ["What is the capital of {place}?", "Tell me a joke about a {animal}.", "What can you do with these tools? Name the three that matter most.", "Thanks, that is all. Who was {first} {last}?"]


def schema(rng, tool):
    verb, noun, does, parameters = tool
    properties = {}
    for name, kind, _ in parameters:
        value = {"type": kind} if isinstance(kind, str) else {"type": "string", "enum": kind}
        if kind == "array":
            value["items"] = {"type": "string"}
        properties[name] = value | {"description": f"The {name.replace('_', ' ')}{rng.choice(ABOUT)}"}
    required = [name for name, _, said in parameters if said]
    function = {"name": f"{verb}_{noun}", "description": does + ".", "parameters": {"type": "object", "properties": properties, "required": required}}
    return {"type": "function", "function": function}


def draw(rng, text):
    """A row whose prompt has 2 to 20 tools and a request; text, if any, stands before the request."""
    chosen = rng.sample(TOOLS, rng.randint(2, 20))
    words = questions.slots(rng)
    _, _, does, parameters = rng.choice(chosen)
    if rng.random() < 0.1:
        ask = rng.choice(NONE).format(**words)
    else:
        details = ", ".join(f"{name.replace('_', ' ')} {said.format(**words)}" for name, _, said in parameters if said)
        low = does[0].lower() + does[1:]
        ask = rng.choice(ASKS).format(does=low, Does=does, details=details)
    row = {"kind": "tools", "source": "tools", "tools": [schema(rng, t) for t in chosen]}
    content = f"{text}\n\n{ask}" if text else ask
    if text and rng.random() < 0.5:
        return row | {"messages": [{"role": "user", "content": f"Keep this in mind.\n\n{text}"}, {"role": "assistant", "content": "I will."}, {"role": "user", "content": ask}]}
    return row | {"messages": [{"role": "user", "content": content}]}
