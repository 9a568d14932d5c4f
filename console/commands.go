package console

import (
	"fmt"
	"strings"

	"glimpse/eviction"
	"glimpse/internal/suggest"
	"glimpse/internal/tables"
)

// command is one that a line of a chat can give.
type command struct {
	name, argument, help string
	run                  func(c *Conversation, argument string) error
}

var commands []command

func init() { // they list themselves
	commands = []command{
		{"/help", "", "list the commands", (*Conversation).help},
		{"/policy", "[NAME]", "tell or change the eviction policy; what was said is read again", (*Conversation).setPolicy},
		{"/budget", "[BUDGET]", "tell or change the budget of the next turns, as 128 or 10%", (*Conversation).setBudget},
		{"/keep", "[LIST]", "tell or change what stays in every head, as system,last or none", (*Conversation).setKeep},
		{"/system", "[TEXT]", "tell or change the system prompt, text or @FILE; what was said is forgotten", (*Conversation).setSystem},
		{"/stats", "", "tell what the turns took", (*Conversation).statistics},
		{"/reset", "", "forget what was said", (*Conversation).reset},
		{"/exit", "", "leave", func(*Conversation, string) error { return errLeave }},
	}
}

// asCommand takes a line apart that is a command. One that begins with the path of a file
// is a message.
func asCommand(line string) (name, argument string, ok bool) {
	if !strings.HasPrefix(line, "/") {
		return "", "", false
	}
	name, argument, _ = strings.Cut(line, " ")
	return name, strings.TrimSpace(argument), !strings.Contains(name[1:], "/")
}

func (c *Conversation) command(name, argument string) error {
	var names []string
	for _, known := range commands {
		if known.name != name {
			names = append(names, known.name)
			continue
		}
		if known.argument == "" && argument != "" {
			return &refusal{fmt.Errorf("%s: got %q, want nothing after it", name, argument)}
		}
		return known.run(c, argument)
	}
	return &refusal{suggest.Unknown("command", name, names)}
}

// completeCommand lists the lines that the beginning of a command may go on as.
func (c *Conversation) completeCommand(line string) []string {
	var lines []string
	for _, known := range commands {
		whole := known.name
		if known.argument != "" {
			whole += " "
		}
		lines = append(lines, whole)
	}
	for _, name := range eviction.Policies.Names() {
		lines = append(lines, "/policy "+name)
	}
	if line == "" || !strings.Contains(line, " ") {
		return lines[:len(commands)] // the name first
	}
	return lines
}

func (c *Conversation) help(string) error {
	t := tables.New(tables.Column{}, tables.Column{Wrap: true})
	for _, known := range commands {
		t.Add(known.name+" "+known.argument, known.help)
	}
	err := t.Write(c.info, c.columns)
	c.say("Anything else is a message.")
	return err
}

// described is the policy and its budget.
func (c *Conversation) described() string {
	if c.policy.Name == "full" {
		return c.policy.NameWithAdapter() + ", which keeps everything"
	}
	return fmt.Sprintf("%s at %s", c.policy.NameWithAdapter(), c.budgetText())
}

func (c *Conversation) budgetText() string {
	if c.o.Budget.Share() > 0 {
		return fmt.Sprintf("%v of the conversation", c.o.Budget)
	}
	return fmt.Sprintf("%v KV entries per KV head and layer", c.o.Budget)
}

func (c *Conversation) setPolicy(name string) error {
	if name == "" {
		c.say(c.described())
		return nil
	}
	policy, err := c.model.PolicyWith(name, "")
	if err != nil {
		return &refusal{fmt.Errorf("/policy: %w", err)}
	}
	before := c.policy
	c.policy = policy
	if err := c.beginSession(); err != nil {
		c.policy = before
		return &refusal{fmt.Errorf("/policy: %w", err)}
	}
	note := ""
	if c.again {
		note = "; what was said is read again with the next message"
	}
	c.say(c.described() + note)
	return nil
}

func (c *Conversation) setBudget(text string) error {
	if text == "" {
		c.say(c.budgetText())
		return nil
	}
	budget, err := eviction.ParseBudget(text)
	if err == nil {
		err = budget.Check()
	}
	if err != nil {
		return &refusal{fmt.Errorf("/budget: %w", err)}
	}
	c.o.Budget, c.session.Budget = budget, budget
	note := ""
	if len(c.messages) > 0 && !c.again {
		note = " from the next turn on; what was evicted stays evicted"
	}
	c.say(c.budgetText() + note)
	return nil
}

func (c *Conversation) setKeep(list string) error {
	rules := c.o.Keep
	if list != "" {
		err := rules.Set(list)
		if err == nil && rules.Fair {
			err = c.policy.CheckFair()
		}
		if err == nil && c.o.Context != nil && rules.Any() {
			err = errBehindContext
		}
		if err != nil {
			return &refusal{fmt.Errorf("/keep: %w", err)}
		}
		c.o.Keep, c.session.Keep = rules, eviction.Keep{}
	}
	switch said := rules.String(); {
	case said != "":
		c.say("Kept: " + said + ".")
	case rules.Pattern != nil:
		c.say("Kept: what --keep-pattern finds.")
	default:
		c.say("Nothing has to stay.")
	}
	return nil
}

func (c *Conversation) setSystem(value string) error {
	if value == "" {
		if c.o.System == nil {
			c.say("There is no system prompt.")
		} else {
			c.say(*c.o.System)
		}
		return nil
	}
	text, err := ReadSystem(value)
	if err == nil {
		err = c.takesSystem(text)
	}
	if err != nil {
		return &refusal{fmt.Errorf("/system: %w", err)}
	}
	c.o.System = &text
	return c.reset("")
}

func (c *Conversation) reset(string) error {
	c.messages, c.turns = nil, nil
	if err := c.beginSession(); err != nil {
		return err
	}
	c.say("What was said is forgotten.")
	return nil
}

func (c *Conversation) statistics(string) error {
	if len(c.turns) == 0 {
		c.say("No turns yet.")
		return nil
	}
	t := tables.New(tables.Column{Head: "turn", Right: true}, tables.Column{Head: "policy"}, tables.Column{Head: "tokens in", Right: true},
		tables.Column{Head: "out", Right: true}, tables.Column{Head: "first ms", Right: true, Optional: 1}, tables.Column{Head: "out/s", Right: true, Optional: 1},
		tables.Column{Head: "cache KiB", Right: true}, tables.Column{Head: "of KiB", Right: true})
	for _, turn := range c.turns {
		t.Add(fmt.Sprint(turn.Turn), turn.Policy, fmt.Sprint(turn.PromptTokens), fmt.Sprint(turn.AnswerTokens),
			fmt.Sprintf("%.1f", turn.TTFTMillis), fmt.Sprintf("%.0f", turn.Speed), fmt.Sprintf("%.1f", kib(turn.cacheBytes)), fmt.Sprintf("%.1f", kib(turn.FullBytes)))
	}
	if err := t.Write(c.info, c.columns); err != nil {
		return err
	}
	last := c.turns[len(c.turns)-1]
	c.say(fmt.Sprintf("%d of %d tokens of the context are used%s.", last.Position, c.model.Config.MaxPositions, trafficNote(c.session.Traffic)))
	return nil
}
