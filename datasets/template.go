package datasets

import (
	"errors"
	"fmt"
	"strings"
)

// template makes text of a row, or leads to one of its fields.
type template struct {
	path  string // without braces: the path of a field, and no parts
	parts []part
}

// part is literal text and, unless it is empty, the path of the value that follows.
type part struct{ literal, path string }

// parseTemplate reads a path, or a template where the text has braces.
func parseTemplate(text string) (*template, error) {
	if !strings.ContainsAny(text, "{}") {
		return &template{path: text}, nil
	}
	t := new(template)
	var literal strings.Builder
	for rest := text; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			literal.WriteString(rest)
			break
		}
		literal.WriteString(rest[:i])
		brace := rest[i]
		if rest = rest[i+1:]; rest != "" && rest[0] == brace {
			literal.WriteByte(brace)
			rest = rest[1:]
			continue
		}
		end := strings.IndexAny(rest, "{}")
		if brace == '}' || end < 1 || rest[end] == '{' {
			return nil, fmt.Errorf("template %q: got a brace alone, want {PATH}, or {{ and }} for braces", text)
		}
		t.parts = append(t.parts, part{literal.String(), rest[:end]})
		literal.Reset()
		rest = rest[end+1:]
	}
	t.parts = append(t.parts, part{literal: literal.String()})
	return t, nil
}

// render is the text of a row. Lists of strings are joined by line breaks.
func (t *template) render(row Row) (string, error) {
	parts := t.parts
	if t.path != "" {
		parts = []part{{path: t.path}}
	}
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.literal)
		if p.path == "" {
			continue
		}
		texts, err := row.Texts(p.path)
		if err != nil {
			return "", err
		}
		b.WriteString(strings.Join(texts, "\n"))
	}
	return b.String(), nil
}

// texts are the strings that a path leads to, or the one of a template.
func (t *template) texts(row Row) ([]string, error) {
	if t.path != "" {
		return row.Texts(t.path)
	}
	text, err := t.render(row)
	return []string{text}, err
}

// renderText returns a string that must be there and not be empty; white space is text.
func (t *template) renderText(row Row) (string, error) {
	if t.path == "" {
		text, err := t.render(row)
		if err == nil && text == "" {
			err = errors.New("got a template that gives an empty string, want text")
		}
		return text, err
	}
	o, err := t.field(row)
	if err != nil {
		return "", err
	}
	return o.requiredText(t.path)
}

// field is an object with nothing but the field that the path leads to, by the path.
func (t *template) field(row Row) (object, error) {
	raw, err := row.Raw(t.path)
	return object{t.path: raw}, err
}
