// Package commands has the command lines of the two programs that messages tell people to run. A test runs every one of them, and
// another one finds those that are written elsewhere.
package commands

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Line is a command line with places for what is the reader's, as {model}.
type Line struct{ text string }

var all []Line

func add(text string) Line {
	l := Line{text}
	all = append(all, l)
	return l
}

// The commands, in an order in which each finds what those before it have made.
var (
	Generate  = add("train generate --model {model} --prompts {prompts} --out pairs.jsonl")
	Lookahead = add("train lookahead --model {model} --data pairs.jsonl --out adapter")
	Patterns  = add("evict patterns --model {model} --out {pattern}")
	TryPolicy = add("evict run --policy {policy} --budget 64 --example section")
	Compare   = add("evict eval --policy {policies} --out {run}")
	GoOn      = add("evict eval --config {config} --out {run} --resume")
	Again     = add("evict eval --config {config} --out again")
	Report    = add("evict report {run}")
	Tasks     = add("evict tasks")
)

// All are the commands of a program, train or evict.
func All(program string) []Line {
	return slices.DeleteFunc(slices.Clone(all), func(l Line) bool { return !strings.HasPrefix(l.text, program+" ") })
}

var place = regexp.MustCompile(`\{([a-z]+)\}`)

// With is the command with values in its places: With("model", path). Values are quoted for a shell where they need it; what has
// none stands in capitals. A place that the command does not have is a mistake of the caller's.
func (l Line) With(values ...string) string {
	given := make(map[string]string)
	for i := 0; i+1 < len(values); i += 2 {
		if !strings.Contains(l.text, "{"+values[i]+"}") {
			panic(fmt.Sprintf("commands: %q has no place %q", l.text, values[i]))
		}
		given[values[i]] = values[i+1]
	}
	return place.ReplaceAllStringFunc(l.text, func(name string) string {
		name = strings.Trim(name, "{}")
		if value, ok := given[name]; ok {
			return Word(value)
		}
		return strings.ToUpper(name)
	})
}

// Places are the names of the command's places.
func (l Line) Places() (names []string) {
	for _, m := range place.FindAllStringSubmatch(l.text, -1) {
		names = append(names, m[1])
	}
	return names
}

// Word is a word as a shell takes it.
func Word(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
