package chat

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Reserved are variables that whoever renders a conversation sets.
var Reserved = []string{"messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "strftime_now", "raise_exception"}

// ParseVariables reads variables of templates, for Options.Extra: each is NAME=VALUE
// with a value in JSON, as enable_thinking=false or reasoning_effort="high".
func ParseVariables(list []string) (map[string]any, error) {
	variables := make(map[string]any, len(list))
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !variableName.MatchString(name) {
			return nil, fmt.Errorf("chat option %q, want NAME=VALUE", text)
		}
		if slices.Contains(Reserved, name) {
			return nil, fmt.Errorf("chat option %s: is not for the command line to set", name)
		}
		if _, twice := variables[name]; twice {
			return nil, fmt.Errorf("chat option %s: given twice", name)
		}
		v, err := ParseJSON([]byte(value))
		if err != nil {
			return nil, fmt.Errorf("chat option %s: value %q is not JSON (a string is written %q): %w", name, value, `"`+value+`"`, err)
		}
		variables[name] = v
	}
	return variables, nil
}

// ParseOptions reads variables, as ParseVariables does, and a date, as 2025-01-31 or
// 2025-01-31T15:04:05, for Options.Now; empty leaves it zero.
func ParseOptions(variables []string, date string) (o Options, err error) {
	if o.Extra, err = ParseVariables(variables); err != nil || date == "" {
		return o, err
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04:05"} {
		if o.Now, err = time.ParseInLocation(layout, date, time.Local); err == nil {
			return o, nil
		}
	}
	return o, fmt.Errorf("chat date %q, want a date as 2025-01-31 or 2025-01-31T15:04:05", date)
}
