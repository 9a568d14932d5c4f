"""Questions about texts: what is asked, what is hidden in a text to be asked for, and the answers known."""
import json, re
from dataclasses import dataclass, field

PROSE = {"story", "essay", "play", "verse", "speech", "blog"}

FIRST = "Amara Anton Beatriz Bruno Carla Cedric Dalia Desmond Edith Emil Farah Felix Greta Gustav Hana Hugo Ines Ivo Jasper Joanna Kenji Klara Leila Lorenz Magda Marek Nadia Niels Olga Omar Paula Pavel Quentin Rosa Rupert Sanne Silas Talia Tomas Ulla Victor Wanda Wilhelm Yara Yusuf Zelda Zoltan Priya Mateo Linnea".split()
LAST = "Abbott Almeida Bergström Castellano Dvorak Eriksen Fontaine Gallagher Haddad Ibarra Jansen Kowalski Lindqvist Marchetti Nakamura Okafor Petrov Quigley Rasmussen Sandoval Tanaka Ueda Vasquez Whitfield Xu Yilmaz Zimmer Ashworth Boateng Chaudhry Delgado Engel Ferreira Grimaldi Holloway Iverson Kaminski Laurent Moreau Novak".split()
PLACE = "Aarhus Bergen Coimbra Dresden Évora Fremantle Galway Hobart Izmir Jaipur Kyoto Lausanne Málaga Nantes Odense Porto Quito Riga Salzburg Tampere Utrecht Valencia Windhoek Xalapa York Zagreb Bologna Cusco Dunedin Esbjerg Freiburg Gdansk Halifax Innsbruck Ljubljana Mombasa Nagoya Oaxaca Piran Rosario".split()
THING = ["accordion", "barometer", "brass lantern", "canoe", "ceramic owl", "chess set", "copper kettle", "dictionary", "field microscope", "fishing net", "flute", "folding ladder", "globe", "grandfather clock", "hammock", "ice skates", "juniper bonsai", "kite", "loom", "magnifying glass", "music box", "oil painting", "pocket watch", "printing press", "quilt", "rocking chair", "sewing machine", "snow globe", "spinning wheel", "stained window", "sundial", "telescope", "toolbox", "tricycle", "typewriter", "umbrella stand", "violin", "walking stick", "weather vane", "wheelbarrow"]
COLOUR = "amber azure beige charcoal crimson emerald indigo ivory khaki lavender maroon mustard ochre olive peach plum salmon scarlet teal turquoise violet".split()
ANIMAL = "badger beaver cormorant donkey falcon ferret gecko goose hedgehog heron ibis jackdaw lynx magpie marmot newt otter parrot pelican puffin raven salamander stork tortoise walrus weasel".split()
FOOD = ["apricot tart", "barley soup", "beetroot salad", "buckwheat pancakes", "chestnut cake", "cucumber sandwiches", "dumplings", "fig jam", "ginger biscuits", "leek pie", "lentil stew", "mushroom risotto", "onion rings", "pear crumble", "pickled herring", "plum cake", "potato gratin", "rice pudding", "roast pumpkin", "walnut bread"]
DAY = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTH = "January February March April May June July August September October November December".split()
JOB = "accountant archivist baker beekeeper carpenter cellist dentist electrician florist gardener glassblower interpreter librarian mechanic midwife optician pharmacist plumber sculptor surveyor tailor translator veterinarian watchmaker".split()
PROJECT = "Bluebird Cinder Driftwood Evergreen Foxglove Granite Harvest Ironwood Juniper Kestrel Lighthouse Meadow Northwind Orchard Pinecone Quarry Riverbed Sandpiper Thistle Undertow Vesper Willow".split()


def slots(rng):
    """Words for the places {…} of a template; no two of them are equal."""
    names = rng.sample(FIRST, 2)
    return {
        "first": names[0], "other": names[1], "last": rng.choice(LAST), "place": rng.choice(PLACE), "thing": rng.choice(THING),
        "colour": rng.choice(COLOUR), "animal": rng.choice(ANIMAL), "food": rng.choice(FOOD), "day": rng.choice(DAY),
        "month": rng.choice(MONTH), "job": rng.choice(JOB), "project": rng.choice(PROJECT), "date": rng.randint(1, 28),
        "n2": rng.randint(12, 99), "n3": rng.randint(101, 999), "n4": rng.randint(1021, 9876), "year": rng.randint(1803, 2019),
        "hour": rng.randint(6, 22), "minute": rng.choice(("05", "10", "15", "20", "25", "35", "40", "45", "50", "55")),
        "code": "".join(rng.choice("BCDFGHJKLMNPQRSTVWXZ") for _ in range(2)) + str(rng.randint(100, 999)),
    }


# A sentence that is hidden in a text, the answer, and ways to ask for it. Sentences of one
# kind with other words may stand beside it: the question tells them apart by what it names.
FACTS = [
    ("{first} {last} was born in {place} in the spring of {year}.", "{place}", ["Where was {first} {last} born?", "In which town was {first} {last} born?"]),
    ("{first} {last} opened the workshop on {month} {date}, {year}.", "{month} {date}, {year}", ["When did {first} {last} open the workshop?", "On what date was the workshop opened by {first} {last}?"]),
    ("The key to the {thing} hangs behind the {colour} door.", "behind the {colour} door", ["Where does the key to the {thing} hang?", "Behind which door is the key to the {thing}?"]),
    ("The ferry to {place} leaves at {hour}:{minute} from pier {n2}.", "{hour}:{minute}", ["At what time does the ferry to {place} leave?", "When does the boat for {place} depart?"]),
    ("The ferry to {place} leaves at {hour}:{minute} from pier {n2}.", "pier {n2}", ["Which pier does the ferry to {place} leave from?", "Where do I board the ferry to {place}?"]),
    ("A {thing} was sold to {first} {last} for {n4} crowns.", "{n4} crowns", ["How much did {first} {last} pay for the {thing}?", "For how many crowns was the {thing} sold to {first} {last}?"]),
    ("In {place} they still tell of the {animal} that learned to ring the bell.", "{animal}", ["Which animal learned to ring the bell in {place}?", "What animal do people in {place} tell of?"]),
    ("{first} keeps {n3} postcards in a {colour} tin under the stairs.", "{n3}", ["How many postcards does {first} keep?", "What number of postcards is in the tin of {first}?"]),
    ("{first} keeps {n3} postcards in a {colour} tin under the stairs.", "{colour}", ["What colour is the tin in which {first} keeps postcards?", "{first} has a tin with postcards. Which colour is it?"]),
    ("Project {project} is led by {first} {last}, who took over in {month}.", "{first} {last}", ["Who leads project {project}?", "Who is in charge of project {project}?"]),
    ("The budget of project {project} was raised to {n3} thousand euros.", "{n3} thousand euros", ["What is the budget of project {project}?", "To what sum was the budget of project {project} raised?"]),
    ("Before moving to {place}, {first} {last} worked as a {job}.", "{job}", ["What did {first} {last} work as before moving to {place}?", "What was the former profession of {first} {last}?"]),
    ("Every {day} the canteen in {place} serves {food}.", "{food}", ["What does the canteen in {place} serve every {day}?", "Which dish is served in {place} on {day}s?"]),
    ("The meeting about the {thing} was moved to {day} at {hour}:{minute}.", "{day} at {hour}:{minute}", ["When is the meeting about the {thing}?", "To what day and time was the meeting about the {thing} moved?"]),
    ("Locker {n3} belongs to {first} {last}.", "{first} {last}", ["To whom does locker {n3} belong?", "Who owns locker {n3}?"]),
    ("Complaints about the {thing} go to extension {n4}.", "{n4}", ["Which extension takes complaints about the {thing}?", "What extension do I call about the {thing}?"]),
    ("The night train from {place} has {n2} carriages, painted {colour}.", "{n2}", ["How many carriages does the night train from {place} have?"]),
    ("{other} lent the {thing} to {first} and never got it back.", "{first}", ["To whom did {other} lend the {thing}?", "Who never gave the {thing} back to {other}?"]),
    ("The password of the guest network in {place} is {animal}-{n4}.", "{animal}-{n4}", ["What is the password of the guest network in {place}?", "I am in {place}. How do I get into the guest network?"]),
    ("Invoice {code} was paid by {first} {last} in {month}.", "{first} {last}", ["Who paid invoice {code}?"]),
    ("Invoice {code} was paid by {first} {last} in {month}.", "{month}", ["In which month was invoice {code} paid?", "When did {first} {last} pay invoice {code}?"]),
    ("The {animal} enclosure at the zoo of {place} measures {n4} square metres.", "{n4} square metres", ["How large is the {animal} enclosure in {place}?", "How many square metres does the {animal} enclosure have?"]),
    ("{first}'s favourite dish is {food}, which {other} cannot stand.", "{food}", ["What is the favourite dish of {first}?", "Which dish can {other} not stand?"]),
    ("The bridge at {place} was closed for {n2} days after the flood of {year}.", "{n2} days", ["For how long was the bridge at {place} closed?", "How many days was the bridge at {place} closed?"]),
    ("The bridge at {place} was closed for {n2} days after the flood of {year}.", "{year}", ["In which year was the flood at {place}?", "What year did the bridge at {place} close?"]),
    ("The spare battery has serial number {code} and is in drawer {n2}.", "{code}", ["What is the serial number of the spare battery?"]),
    ("{first} {last} runs the {colour} bakery beside the station of {place}.", "{first} {last}", ["Who runs the bakery beside the station of {place}?"]),
    ("The winner of the {year} regatta was the {job} {first} {last}.", "{first} {last}", ["Who won the regatta of {year}?", "What is the name of the winner of the {year} regatta?"]),
    ("Platform {n2} is reserved for deliveries of {food}.", "{food}", ["For what is platform {n2} reserved?", "Which deliveries does platform {n2} take?"]),
    ("The caretaker, a {job} by training, buried the {thing} near the well in {place}.", "near the well in {place}", ["Where did the caretaker bury the {thing}?", "Where is the {thing} buried?"]),
]

# Groups of keys and values: name of the group, key, value, the sentence that says it, question.
GROUPS = [
    ("Extensions", "{first} {last}", "{n4}", "The extension of {key} is {value}.", "What is the extension of {key}?"),
    ("Room bookings", "{project} room", "{day}, {hour}:{minute}", "The {key} is booked for {value}.", "For when is the {key} booked?"),
    ("Inventory", "{thing}", "{n3} pieces", "The stock of the item {key} is {value}.", "What is the stock of the item {key}?"),
    ("Shipments", "{code}", "{place}", "Shipment {key} goes to {value}.", "Where does shipment {key} go?"),
    ("Settings", "{project}_timeout", "{n3}", "The value of {key} is {value}.", "What is the value of {key}?"),
    ("Settings", "{project}.{animal}.size", "{n4}", "The setting {key} is {value}.", "What is the setting {key}?"),
    ("Environment", "{project}_HOME", "/srv/{animal}/{n3}", "{key} is set to {value}.", "What is {key} set to?"),
    ("Prices", "{food}", "{n2} crowns", "The price of the {key} is {value}.", "What is the price of the {key}?"),
    ("Tickets", "Ticket {n4}", "{first} {last}", "{key} is assigned to {value}.", "Who is {key} assigned to?"),
    ("Departures", "{place}", "{hour}:{minute}", "The bus to {key} leaves at {value}.", "When does the bus to {key} leave?"),
    ("Badges", "{colour} {animal}", "{code}", "The code of the {key} badge is {value}.", "What is the code of the {key} badge?"),
    ("Mascots", "{project}", "{animal}", "The mascot of team {key} is the {value}.", "What is the mascot of team {key}?"),
    ("Staff", "{first} {last}", "{job}", "The job of {key} is {value}.", "What is the job of {key}?"),
]
SHAPES = [
    lambda name, rows: f"{name}:\n" + "\n".join(f"- {k}: {v}" for k, v in rows),
    lambda name, rows: f"{name}\n" + "\n".join(f"{k} = {v}" for k, v in rows),
    lambda name, rows: f"| {name} | |\n|---|---|\n" + "\n".join(f"| {k} | {v} |" for k, v in rows),
    lambda name, rows: json.dumps({name.lower(): dict(rows)}, indent=2, ensure_ascii=False),
    lambda name, rows: f"[{name.lower()}]\n" + "\n".join(f'"{k}" = "{v}"' for k, v in rows),
]

SUMMARY = ["Summarise this text in three sentences.", "Give a short summary.", "What is this text about?", "Write a title and a two-sentence summary for it.", "What is the main point here?", "Sum this up for someone who has no time to read it.", "Write an abstract of at most 60 words.", "Explain the essentials in simple words.", "What should a reader remember of this?", "Give me the gist in one paragraph.", "Which problem does this deal with, and what is said about it?", "Condense the passage to its key message."]
REWRITE = ["Rewrite the first paragraph in plain English.", "Turn this into five bullet points.", "Write a short e-mail to a colleague that tells what this says.", "Rephrase the text for a ten-year-old.", "Write three questions that a teacher could ask about this text.", "Write a headline and a lead for a newspaper.", "Draft a short reply to the author of this.", "Make a checklist out of this."]
LISTS = {
    "code": ["List the functions that are defined here.", "Which functions take more than one argument? List them.", "List the errors that this code can raise or return.", "Name the types and classes that are used here."],
    "prose": ["List the persons who are mentioned.", "Name all places in the text.", "List the most important events in order.", "Which objects are described? Make a list."],
    "tech": ["List the options, commands or functions that are mentioned.", "List the main points as bullets.", "Name the terms that a newcomer must know.", "Which steps are described? Number them.", "List every version or number in the text.", "Which restrictions and warnings are given? List them."],
    "licence": ["List what a user may do.", "List the conditions that must be kept.", "Which liabilities are excluded? List them."],
    "profile": ["List five facts about this country.", "List the numbers given, with what they mean.", "Name the neighbours, and the products or resources mentioned."],
}
CODE = ["Explain what this code does.", "What is the purpose of {name}?", "What does {name} return?", "Explain {name} step by step.", "Which arguments does {name} take, and what are they for?", "Write a docstring for {name}.", "Write a test for {name}.", "Are there any bugs or risks in {name}?", "How would you call {name}? Give an example.", "When does {name} fail?"]
COMPARE = ["How do the two texts differ?", "What do both texts have in common?", "Compare the two passages in a few sentences.", "Which of the two is more technical, and why?", "Name one thing that is only in the first, and one that is only in the second.", "Summarise each of the two in one sentence.", "Do the two passages contradict each other?"]
CONTINUE = ["Continue this text.", "Write the next paragraph.", "How might this go on? Continue in the same style.", "Please continue where it stops."]
MORE = ["Are you sure? Quote the sentence that says so.", "What else does the text say around there?", "Where in the text did you find that?"]
BRIEF = ["", "", "", " Answer briefly.", " Answer in one sentence."]
QUOTE = ["Copy this passage of the text to its end, starting with: {words}", "Repeat the sentence of the text that begins with \"{words}\".", "Repeat the text word for word from \"{words}\" on."]
COPY = ["Repeat the first paragraph word for word.", "Copy the first sentence of the text.", "What are the first words of the text?", "Repeat the text from its start."]
BLANK = ["Which word or number is missing, according to the text? \"{blank}\"", "Fill in the gap from the text: \"{blank}\"", "Complete this sentence as it stands in the text: \"{blank}\""]
ABOUT = ["Who or what is {name}, according to the text?", "What does the text say about {name}?", "Why is {name} mentioned?", "In what context does {name} appear?", "Tell me about {name} as the text does."]
YEAR = ["What happened in {name}, according to the text?", "Why does the text mention the year {name}?"]
WHERE = ["Where does this take place?", "Who is speaking here, and to whom?", "When does this take place? Give the words that tell it.", "Who does what in this passage?"]


@dataclass
class Question:
    kind: str
    ask: str
    answer: str = ""  # "" where none is known
    insert: list = field(default_factory=list)  # passages to be put into the text
    following: "Question" = None  # another question about them


def sentences(text):
    """The sentences of 8 to 40 words that stand once in the text."""
    found = re.findall(r"(?:(?<=[.!?]\s)|(?<=\n\n))[A-Z][^.!?\n|{}\[\]<>]*(?:\n[^.!?\n|{}\[\]<>]+)*[.!?](?=\s)", text)
    return [s for s in (" ".join(x.split()) for x in found) if 8 <= len(s.split()) <= 40]


def names(text):
    """Names of two and more words, inside of sentences."""
    return sorted({" ".join(x.split()) for x in re.findall(r"(?<=[a-z,] )[A-Z][a-z]+(?: (?:of |de )?[A-Z][a-z]+)+", text)})


def find(rng, text, category):
    template = rng.choice(FACTS)
    words = [slots(rng)]
    for _ in range(rng.choice((0, 0, 0, 1, 2, 3))):
        other = slots(rng)
        if not set(map(str, other.values())) & set(map(str, words[0].values())):  # nothing that the question names
            words.append(other)
    passages = [template[0].format(**w) for w in words]
    answer, ask = template[1].format(**words[0]), rng.choice(template[2]).format(**words[0]) + rng.choice(BRIEF)
    if rng.random() < 0.4:
        ask = rng.choice(BLANK).format(blank=passages[0].replace(answer, "____", 1))
    return Question("find", ask, answer, passages)


def keyvalue(rng, text, category):
    """Keys and values in one place or, half of the time, in lines of their own; few, as the model has
    135 million parameters."""
    name, key, value, sentence, template = rng.choice(GROUPS)
    rows, count = {}, rng.randint(2, 5)
    while len(rows) < count:
        w = slots(rng)
        rows.setdefault(key.format(**w), value.format(**w))
    choice = rng.random()
    if choice < 0.7:
        line = sentence if choice < 0.5 else rng.choice(("{key}: {value}", "{key} = {value}"))
        passages = [line.format(key=k, value=v) for k, v in rows.items()]
        if rng.random() < 0.5:
            passages = ["\n".join(passages)]
    else:
        passages = [rng.choice(SHAPES)(name, list(rows.items()))]
    first, second = rng.sample(sorted(rows), 2)
    brief = rng.choice(BRIEF)

    def ask(key):
        return template.format(key=key) + brief

    following = Question("keyvalue", ask(second), rows[second])
    return Question("keyvalue", ask(first), rows[first], passages, following)


def mail(rng, text, category):
    """The text as a mail that was sent on."""
    w = slots(rng)
    sender, to = f"{w['first']} {w['last']}", f"{w['other']} {rng.choice(LAST)}"
    date = f"{w['date']} {w['month']} {w['year'] % 20 + 2004}"
    head = f"From: {sender}\nTo: {to}\nDate: {date}, {w['hour']}:{w['minute']}\nSubject: {rng.choice(('Fwd: ', 'Re: ', ''))}{w['project']}\n\nDear {w['other']},"
    foot = f"Please answer until {w['day']}.\n\nBest wishes\n{w['first']}"
    ask, answer = rng.choice([
        ("Who sent this mail?", sender), ("To whom is the mail addressed?", to), ("When was this mail sent?", date),
        ("Until when does the sender want an answer?", w["day"]), ("What does the sender write about? Tell it in two sentences.", ""),
        ("Write a polite reply to this mail.", ""), ("What is the subject line, and does it fit what the mail says?", w["project"])])
    return Question("mail", ask, answer, [head, foot])


def quote(rng, text, category):
    start = " ".join(text.split()[:4])
    if rng.random() < 0.4:
        return Question("quote", rng.choice(COPY), start)
    if not (found := sentences(text)):
        return None
    s = rng.choice(found)
    return Question("quote", rng.choice(QUOTE).format(words=" ".join(s.split()[:6])), s)


def blank(rng, text, category):
    found = [(s, m) for s in sentences(text) for m in re.finditer(r"(?<=\w )(?:[A-Z][a-z]{3,}|\d[\d,.]*\d|\d)(?=[ ,;.])", s)]
    if not found:
        return None
    s, m = rng.choice(found)
    return Question("who-when-where", rng.choice(BLANK).format(blank=s[: m.start()] + "____" + s[m.end() :]), m[0])


def about(rng, text, category):
    known, years = names(text), sorted(set(re.findall(r"(?<=[a-z] )(?:1[5-9]\d\d|20[0-2]\d)(?=[ ,.;])", text)))
    choice = rng.random()
    if choice < 0.35 or not (known or years):
        return blank(rng, text, category)
    if category in PROSE and choice < 0.5:
        return Question("who-when-where", rng.choice(WHERE))
    if years and (not known or choice > 0.8):
        return Question("who-when-where", rng.choice(YEAR).format(name=rng.choice(years)))
    return Question("who-when-where", rng.choice(ABOUT).format(name=rng.choice(known)) + rng.choice(BRIEF))


def entry(rng, text, category):
    """A field of a country's profile."""
    found = re.findall(r"^([A-Z][\w -]{3,40}): ([^\n]{2,120})$", text, re.M)
    if not found:
        return None
    key, value = rng.choice(found)
    ask = rng.choice(["What does the profile say under \"{}\"?", "Give the entry for {}.", "What is the {} here?"]).format(key)
    return Question("keyvalue", ask, value)


def lists(rng, text, category):
    group = category if category in LISTS else "prose" if category in PROSE else "tech"
    return Question("list", rng.choice(LISTS[group]))


def code(rng, text, category):
    defined = re.findall(r"^ *(?:async )?(?:def|class) (\w+)|^func (?:\([^)]*\) )?(\w+)", text, re.M)
    defined = sorted({a or b for a, b in defined} - {"__init__"})
    ask = rng.choice(CODE)
    if "{name}" in ask and not defined:
        ask = CODE[0]
    return Question("code", ask.format(name=f"`{rng.choice(defined)}`" if defined else ""))


def constant(rng, text, category):
    """A constant that is hidden in code."""
    w = slots(rng)
    name, value = f"{w['project']}_{rng.choice(('limit', 'retries', 'port', 'offset', 'threshold'))}".upper(), str(w["n4"])
    ask = rng.choice([f"What is the value of {name}?", f"To which number is {name} set?", f"Which value does the constant {name} have?"])
    return Question("code", ask, value, [("const " if re.search(r"^func ", text, re.M) else "") + f"{name} = {value}"])


def of(kind, templates):
    return lambda rng, text, category: Question(kind, rng.choice(templates))


# Questions about one text, with how often they are asked of code, profiles and other texts.
KINDS = [
    (of("summary", SUMMARY), 5, 8, 13),
    (find, 3, 15, 24),
    (keyvalue, 3, 8, 16),
    (mail, 0, 0, 4),
    (quote, 0, 2, 4),
    (about, 0, 8, 13),
    (entry, 0, 20, 0),
    (lists, 12, 12, 9),
    (of("rewrite", REWRITE), 0, 6, 6),
    (of("continue", CONTINUE), 10, 0, 4),
    (code, 50, 0, 0),
    (constant, 17, 0, 0),
]


def draw(rng, text, category):
    """A question about a text; None where the text does not give what it takes."""
    column = {"code": 1, "profile": 2}.get(category, 3)
    make = rng.choices([k[0] for k in KINDS], [k[column] for k in KINDS])[0]
    return make(rng, text, category)
