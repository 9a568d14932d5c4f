package serving

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	settings
	Prompt         json.RawMessage `json:"prompt"`
	Echo           bool            `json:"echo"`
	LogProbs       *int            `json:"logprobs"`
	AddSpecial     *bool           `json:"add_special_tokens"`
	ResponseFormat *responseFormat `json:"response_format"`
	Unread         unread          `json:",embed"`
}

// defaultMaxTokens is the most tokens of a completion where the request does not say, as in OpenAI's API.
const defaultMaxTokens = 16

type textChoice struct {
	Text         string        `json:"text"`
	Index        int           `json:"index"`
	LogProbs     *textLogProbs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

// promptsOf are the prompts of a field: a text, texts, token ids or lists of them. texts are nil where they were ids.
func (s *Server) promptsOf(ctx context.Context, raw json.RawMessage, special bool) (all [][]int32, texts []string, err error) {
	kind := func(raw json.RawMessage) jsontext.Kind { return jsontext.Value(raw).Kind() }
	list, _ := bytes.CutPrefix(bytes.TrimSpace(raw), []byte("["))
	switch first := kind(bytes.TrimSpace(list)); {
	case !given(raw):
		return nil, nil, refuse("prompt", "is missing")
	case kind(raw) == '"':
		texts = make([]string, 1)
		err = decodeJSON(ctx, "prompt", raw, &texts[0])
	case kind(raw) != '[' || first == ']':
		return nil, nil, refuse("prompt", "got %.60s, want a text, a list of texts, token ids or a list of them", raw)
	case first == '[':
		return all, nil, decodeJSON(ctx, "prompt", raw, &all)
	case first == '"':
		err = decodeJSON(ctx, "prompt", raw, &texts)
	default:
		all = make([][]int32, 1)
		return all, nil, decodeJSON(ctx, "prompt", raw, &all[0])
	}
	if err != nil {
		return nil, nil, err
	}
	for _, t := range texts {
		if t == "" {
			return nil, nil, refuse("prompt", "got an empty text")
		}
		ids, err := encode(s.model.Model, t, special)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, ids)
	}
	return all, texts, nil
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	var c completionRequest
	if err := readJSON(r, &c); err != nil {
		return err
	}
	c.rename()
	most := or(c.MaxTokens, defaultMaxTokens)
	if c.MaxTokens = &most; most == 0 { // which only /v1/completions takes
		c.MaxTokens = nil
	}
	g, err := s.generation("cmpl-", &c.settings)
	if err != nil {
		return err
	}
	if most == 0 {
		g.maxNew = 0
	}
	if c.LogProbs != nil || c.Echo {
		if _, err := s.model.NeedTokenizer(); err != nil {
			return refuse("", "%v", err)
		}
	}
	if c.LogProbs != nil {
		if g.top, err = topLogProbs("logprobs", *c.LogProbs); err != nil {
			return err
		}
		g.logProbs, g.endLogProbs, g.promptLogProbs = true, true, c.Echo
	}
	var texts []string
	if g.prompts, texts, err = s.promptsOf(r.Context(), c.Prompt, or(c.AddSpecial, true)); err != nil {
		return err
	}
	if len(g.prompts)*g.choices > maxChoices {
		return refuse("prompt", "got %d prompts with %d answers each, want at most %d answers", len(g.prompts), g.choices, maxChoices)
	}
	for _, ids := range g.prompts {
		if err := g.checkPrompt(s, "prompt", ids); err != nil {
			return err
		}
	}
	if err := g.constrain(c.ResponseFormat.grammar()); err != nil {
		return err
	}
	echoes := make([]string, len(g.prompts))
	if c.Echo && texts != nil {
		echoes = texts
	} else if c.Echo {
		for i, ids := range g.prompts {
			if echoes[i], err = s.model.Tokenizer.Decode(ids, false); err != nil {
				return refuse("prompt", "%v", err)
			}
		}
	}
	followed := make([]*textTokens, len(g.prompts)*g.choices)
	if g.logProbs {
		for i := range followed {
			followed[i] = g.newTextTokens(g.prompts[i/g.choices], echoes[i/g.choices])
		}
	}
	j, release, err := s.start(r, g)
	if err != nil {
		return err
	}
	defer release()
	out := completion{ID: g.id, Object: "text_completion", Created: created(), Model: g.model}
	if c.Stream {
		return s.streamCompletion(w, r, &c, g, j, echoes, followed, out)
	}
	results, total := make([]textChoice, len(j.choices)), usage{}
	prompts := make(map[int]int) // tokens, by prompt
	for i := range results {
		results[i] = textChoice{Index: i, Text: echoes[i/g.choices]}
		if g.logProbs {
			results[i].LogProbs = &textLogProbs{}
		}
	}
	err = j.each(r.Context(), func(ch *choice, said chunk) error {
		res := &results[ch.index]
		if g.logProbs {
			followed[ch.index].addTokens(res.LogProbs, said.tokens)
		}
		if res.Text += said.text; said.done {
			reason := finishReason(said.reason)
			res.FinishReason = &reason
			total.addUsage(said.usage)
			prompts[ch.index/g.choices] = said.usage.PromptTokens
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, res := range results {
		out.Choices = append(out.Choices, res)
	}
	total.ofPrompts(prompts)
	out.Usage = &total
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, c *completionRequest, g *generation, j *job, echoes []string, followed []*textTokens, out completion) error {
	stream, total := newEvents(w), usage{}
	out.Usage = c.pending()
	prompts := make(map[int]int)
	begun := make([]bool, len(j.choices))
	err := j.each(r.Context(), func(ch *choice, said chunk) error {
		entry := textChoice{Index: ch.index, Text: said.text}
		first := !begun[ch.index]
		if first {
			entry.Text, begun[ch.index] = echoes[ch.index/g.choices]+entry.Text, true
		}
		if g.logProbs && (len(said.tokens) > 0 || first && g.promptLogProbs) {
			entry.LogProbs = &textLogProbs{}
			followed[ch.index].addTokens(entry.LogProbs, said.tokens)
		}
		if said.done {
			reason := finishReason(said.reason)
			entry.FinishReason = &reason
			total.addUsage(said.usage)
			prompts[ch.index/g.choices] = said.usage.PromptTokens
		} else if entry.Text == "" && entry.LogProbs == nil {
			return nil
		}
		out.Choices = []any{entry}
		return stream.writeEvent(out)
	})
	total.ofPrompts(prompts)
	stream.endStream(err, out, c.wanted(&total))
	return nil
}

// ofPrompts makes the prompt tokens the sum of several prompts', each counted once.
func (u *usage) ofPrompts(tokens map[int]int) {
	u.PromptTokens = 0
	for _, n := range tokens {
		u.PromptTokens += n
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}
