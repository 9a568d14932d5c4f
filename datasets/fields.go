package datasets

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"glimpse/internal/listing"
	"glimpse/internal/registry"
)

// Fields says where the parts of an example stand in the rows of a source. Each is a path
// (see [Row]) or, where it has braces, a template: "{context}\n\n{question}", whose
// placeholders are paths to strings, numbers or lists of strings, which are joined by line
// breaks; "{{" is a brace. At most one of Prompt, Text, Messages and PromptIDs is given.
// What is not given is read as [PromptReader] describes.
type Fields struct {
	Preset string `json:"preset,omitempty"` // one of FieldPresets; what is given beside it comes first

	ID        string `json:"id,omitempty"`
	Prompt    string `json:"prompt,omitempty"`     // what a user says
	Text      string `json:"text,omitempty"`       // running text
	Messages  string `json:"messages,omitempty"`   // a list of turns: role and content, from and value, or human and assistant
	PromptIDs string `json:"prompt_ids,omitempty"` // a list of token ids
	Context   string `json:"context,omitempty"`    // stands before the prompt or the first user turn, after it an empty line
	Answer    string `json:"answer,omitempty"`     // a string, a list of strings, or an object with them as "text"

	// MetricOptions are paths by the name of the metric's option.
	MetricOptions map[string]string `json:"metric_options,omitempty"`
}

// SetScalar makes a preset's name alone Fields.
func (f *Fields) SetScalar(text string) error {
	f.Preset = text
	return nil
}

// FieldPresets are the fields of data sets in common use, by their names.
var FieldPresets = registry.Registry[FieldPreset]{Noun: "field preset"}

// FieldPreset is where the rows of one data set hold the parts.
type FieldPreset struct {
	Doc    string // which data sets have such rows
	Fields Fields
	// Unanswerable: a row without an answer asks what its context does not tell.
	Unanswerable bool
}

// slot is a field of Fields by its name.
type slot struct {
	name     string
	value    *string
	template bool // may be one
}

func (f *Fields) slots() []slot {
	return []slot{
		{"id", &f.ID, true}, {"prompt", &f.Prompt, true}, {"text", &f.Text, true}, {"messages", &f.Messages, false},
		{"prompt_ids", &f.PromptIDs, false}, {"context", &f.Context, true}, {"answer", &f.Answer, true},
	}
}

var assignment = regexp.MustCompile(`,\s*([a-z_]+(?:\.\w+)?=)`)

// ParseFields reads what flags say: NAME=PATH, several of them with commas between, or
// NAME=TEMPLATE alone, where \n is a line break; a name without "=" is a preset. Names are
// as in Fields, and metric_options.OPTION.
func ParseFields(flags []string) (Fields, error) {
	var f Fields
	for _, flag := range flags {
		pieces := []string{flag}
		if !strings.ContainsAny(flag, "{}") {
			pieces = strings.Split(assignment.ReplaceAllString(flag, "\x00$1"), "\x00")
		}
		for _, piece := range pieces {
			name, value, ok := strings.Cut(strings.TrimSpace(piece), "=")
			if !ok {
				name, value = "preset", name
			}
			if err := f.setField(name, unescape.Replace(value)); err != nil {
				return Fields{}, fmt.Errorf("field %q: %w", piece, err)
			}
		}
	}
	return f, f.Validate()
}

var unescape = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`)

func (f *Fields) setField(name, value string) error {
	if option, ok := strings.CutPrefix(name, "metric_options."); ok {
		if f.MetricOptions == nil {
			f.MetricOptions = map[string]string{}
		}
		f.MetricOptions[option] = value
		return nil
	}
	slots := append(f.slots(), slot{name: "preset", value: &f.Preset})
	i := slices.IndexFunc(slots, func(s slot) bool { return s.name == name })
	switch {
	case i < 0:
		names := listing.Map(slots, func(s slot) string { return s.name })
		return fmt.Errorf("unknown name %q, want one of: %s, metric_options.OPTION", name, strings.Join(names, ", "))
	case value == "":
		return fmt.Errorf("got nothing for %s, want a path or a template", name)
	case *slots[i].value != "":
		return fmt.Errorf("got %s twice, want it once", name)
	}
	*slots[i].value = value
	return nil
}

// Validate returns an error that names the first field that cannot be.
func (f Fields) Validate() error {
	_, err := f.compileMapping()
	return err
}

// IsZero tells that nothing is given.
func (f Fields) IsZero() bool {
	for _, s := range f.slots() {
		if *s.value != "" {
			return false
		}
	}
	return f.Preset == "" && len(f.MetricOptions) == 0
}

// mapping is Fields made ready: nil where nothing is given.
type mapping struct {
	id, prompt, text, context, answer *template
	messages, promptIDs               *template
	options                           map[string]*template
	unanswerable                      bool // a row without an answer has none
}

func (f Fields) compileMapping() (*mapping, error) {
	m := &mapping{options: map[string]*template{}}
	if f.Preset != "" {
		preset, err := FieldPresets.Lookup(f.Preset)
		if err != nil {
			return nil, err
		}
		m.unanswerable = preset.Unanswerable && f.Answer == ""
		f = f.over(preset.Fields)
	}
	into := []**template{&m.id, &m.prompt, &m.text, &m.messages, &m.promptIDs, &m.context, &m.answer}
	forms := 0
	for i, s := range f.slots() {
		if *s.value == "" {
			continue
		}
		t, err := parseTemplate(*s.value)
		if err == nil && !s.template && t.path == "" {
			err = fmt.Errorf("got the template %q, want a path", *s.value)
		}
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", s.name, err)
		}
		*into[i] = t
		switch s.name {
		case "prompt", "text", "messages", "prompt_ids":
			forms++
		}
	}
	switch {
	case forms > 1:
		return nil, fmt.Errorf("fields: got %d of prompt, text, messages and prompt_ids, want one", forms)
	case m.promptIDs != nil && m.context != nil:
		return nil, fmt.Errorf("fields: got context beside prompt_ids, want it with text")
	}
	for _, name := range slices.Sorted(maps.Keys(f.MetricOptions)) {
		t, err := parseTemplate(f.MetricOptions[name])
		if err == nil && t.path == "" {
			err = fmt.Errorf("got the template %q, want a path", f.MetricOptions[name])
		}
		if err != nil {
			return nil, fmt.Errorf("field metric_options.%s: %w", name, err)
		}
		m.options[name] = t
	}
	return m, nil
}

// over is f with what it does not give taken from base. A form of the prompt takes the
// place of any other.
func (f Fields) over(base Fields) Fields {
	out := base
	if f.Prompt != "" || f.Text != "" || f.Messages != "" || f.PromptIDs != "" {
		out.Prompt, out.Text, out.Messages, out.PromptIDs = "", "", "", ""
	}
	given, slots := f.slots(), out.slots()
	for i := range slots {
		if *given[i].value != "" {
			*slots[i].value = *given[i].value
		}
	}
	out.Preset = f.Preset
	out.MetricOptions = maps.Clone(base.MetricOptions)
	if out.MetricOptions == nil {
		out.MetricOptions = map[string]string{}
	}
	maps.Copy(out.MetricOptions, f.MetricOptions)
	return out
}
