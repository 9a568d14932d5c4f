package serving

import (
	"cmp"
	"encoding/json"
)

// renamed are fields of llama.cpp and of earlier versions of vLLM, which have other names here.
type renamed struct {
	RepeatPenalty *float64        `json:"repeat_penalty"`
	NPredict      *int            `json:"n_predict"`
	Grammar       string          `json:"grammar"`
	JSONSchema    json.RawMessage `json:"json_schema"`
	GuidedJSON    json.RawMessage `json:"guided_json"`
	GuidedRegex   string          `json:"guided_regex"`
	GuidedChoice  []string        `json:"guided_choice"`
	GuidedGrammar string          `json:"guided_grammar"`
}

// rename takes the fields with other names, where ours are not there.
func (s *settings) rename() {
	s.RepetitionPenalty = cmp.Or(s.RepetitionPenalty, s.RepeatPenalty)
	if s.MaxTokens == nil {
		s.bound("n_predict", s.NPredict)
	}
	if s.StructuredOutputs != nil {
		return
	}
	of := structured{Regex: s.GuidedRegex, Choice: s.GuidedChoice, Grammar: cmp.Or(s.Grammar, s.GuidedGrammar)}
	for _, schema := range []json.RawMessage{s.JSONSchema, s.GuidedJSON} {
		if given(schema) {
			of.JSON = schema
		}
	}
	if of.fieldCount() > 0 {
		s.StructuredOutputs = &of
	}
}
