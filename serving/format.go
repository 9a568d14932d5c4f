package serving

import (
	"encoding/json"
)

// responseFormat is what an answer must look like, as OpenAI's API says it.
type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"`
	} `json:"json_schema"`
}

// structured is what an answer must look like, as vLLM's API says it: one of the fields.
type structured struct {
	JSON       json.RawMessage `json:"json"`
	JSONObject bool            `json:"json_object"`
	Regex      string          `json:"regex"`
	Choice     []string        `json:"choice"`
	Grammar    string          `json:"grammar"`
}

func (f *responseFormat) ofText(raw json.RawMessage) error { return json.Unmarshal(raw, f) }

func (g *generation) constrainTo(s *Server, t *structured) error { return nil }
func (g *generation) format(s *Server, f *responseFormat) error  { return nil }
