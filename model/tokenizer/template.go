package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// templateList is chat_template: a template's source, or a list of named ones.
type templateList []namedTemplate

type namedTemplate struct {
	Name     string `json:"name"`
	Template string `json:"template"`
}

func (t *templateList) UnmarshalJSON(data []byte) error {
	var s *string
	if err := json.Unmarshal(data, &s); err == nil {
		if s != nil {
			*t = templateList{{"default", *s}}
		}
		return nil
	}
	var list []namedTemplate
	if err := json.Unmarshal(data, &list); err == nil {
		*t = list
		return nil
	}
	// As transformers holds them once read.
	if data[0] != '{' || members(data, func(name, template string) { *t = append(*t, namedTemplate{name, template}) }) != nil {
		return fmt.Errorf("chat_template is neither a string nor a list of named templates: %s", shorten(data))
	}
	return nil
}

// takeTemplate takes over the template of a conversation without tools or documents.
// That is the one named default. Without it transformers asks its caller; here the
// first is taken that is not for tools or documents.
func (c *Config) takeTemplate(list templateList, file string) error {
	if len(list) == 0 {
		return nil
	}
	for _, e := range list {
		if e.Name == "default" {
			c.ChatTemplate, c.ChatTemplateFrom = e.Template, file
			return nil
		}
	}
	chosen := list[0]
	for _, e := range list {
		if e.Name != "tool_use" && e.Name != "rag" {
			chosen = e
			break
		}
	}
	if chosen.Template == "" {
		return fmt.Errorf("chat_template %q is empty, and none of the %d is named \"default\"", chosen.Name, len(list))
	}
	c.ChatTemplate, c.ChatTemplateChosen = chosen.Template, true
	c.ChatTemplateFrom = fmt.Sprintf("%s: %q of %d, none of which is named \"default\"", file, chosen.Name, len(list))
	return nil
}

// loadTemplate takes over a chat template of a file of its own: chat_template.jinja,
// which wins over tokenizer_config.json, or chat_template.json, which belongs to a
// processor and counts where there is no other.
func (t *Tokenizer) loadTemplate(dir fs.FS) error {
	source, err := readBounded(dir, "chat_template.jinja")
	if err == nil {
		t.config.ChatTemplate, t.config.ChatTemplateFrom, t.config.ChatTemplateChosen = string(source), "chat_template.jinja", false
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if t.config.ChatTemplate != "" {
		return nil
	}
	data, err := readOptional(dir, "chat_template.json")
	if data == nil || err != nil {
		return err
	}
	var f struct {
		ChatTemplate templateList `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("chat_template.json: %w", describeJSON(data, err))
	}
	if err := t.config.takeTemplate(f.ChatTemplate, "chat_template.json"); err != nil {
		return fmt.Errorf("chat_template.json: %w", err)
	}
	return nil
}
