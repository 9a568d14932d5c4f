package serving

import (
	"encoding/json"
	"net/http"
	"strings"
)

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	settings
	Prompt         json.RawMessage `json:"prompt"`
	Echo           bool            `json:"echo"`
	LogProbs       *int            `json:"logprobs"`
	AddSpecial     *bool           `json:"add_special_tokens"`
	ResponseFormat *responseFormat `json:"response_format"`
}

type textChoice struct {
	Text         string        `json:"text"`
	Index        int           `json:"index"`
	LogProbs     *textLogProbs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

type textLogProbs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogProbs []float64            `json:"token_logprobs"`
	TopLogProbs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// add adds tokens, whose text begins at an offset.
func (l *textLogProbs) add(s *Server, tokens []tokenLogProb, offset int) int {
	text := func(id int32) string { return strings.ToValidUTF8(s.model.Tokenizer.Piece(id), "\uFFFD") }
	for _, t := range tokens {
		l.Tokens = append(l.Tokens, text(t.id))
		l.TokenLogProbs = append(l.TokenLogProbs, t.logProb)
		top := map[string]float64{}
		for _, p := range t.top {
			top[text(p.ID)] = p.LogProb
		}
		l.TopLogProbs = append(l.TopLogProbs, top)
		l.TextOffset = append(l.TextOffset, offset)
		offset += len([]rune(text(t.id)))
	}
	return offset
}

// promptsOf are the prompts of a field: a text, texts, token ids or lists of them.
func (s *Server) promptsOf(raw json.RawMessage, special bool) (all [][]int32, err error) {
	var text string
	var texts []string
	var ids []int32
	var lists [][]int32
	switch {
	case !given(raw):
		return nil, refuse("prompt", "is missing")
	case json.Unmarshal(raw, &text) == nil:
		texts = []string{text}
	case json.Unmarshal(raw, &texts) == nil && len(texts) > 0:
	case json.Unmarshal(raw, &ids) == nil && len(ids) > 0:
		return [][]int32{ids}, nil
	case json.Unmarshal(raw, &lists) == nil && len(lists) > 0:
		return lists, nil
	default:
		return nil, refuse("prompt", "got %.60s, want a text, a list of texts, token ids or a list of them", raw)
	}
	for _, t := range texts {
		if t == "" {
			return nil, refuse("prompt", "got an empty text")
		}
		ids, err := encode(s.model.Model, t, special)
		if err != nil {
			return nil, err
		}
		all = append(all, ids)
	}
	return all, nil
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	var c completionRequest
	if err := readJSON(r, &c); err != nil {
		return err
	}
	g, err := s.generation("cmpl-", &c.settings)
	if err != nil {
		return err
	}
	if c.MaxTokens == nil {
		g.maxNew = 0
	}
	if c.LogProbs != nil {
		if g.top, err = topLogProbs("logprobs", *c.LogProbs); err != nil {
			return err
		}
		g.logProbs = true
	}
	if c.Echo && (g.logProbs || len(g.stop) > 0) {
		return refuse("echo", "is supported without logprobs and stop")
	}
	if g.prompts, err = s.promptsOf(c.Prompt, or(c.AddSpecial, true)); err != nil {
		return err
	}
	if len(g.prompts)*g.choices > maxChoices {
		return refuse("prompt", "got %d prompts with %d answers each, want at most %d answers", len(g.prompts), g.choices, maxChoices)
	}
	for _, ids := range g.prompts {
		if err := g.check(s, "prompt", ids); err != nil {
			return err
		}
	}
	if err := g.constrain(c.ResponseFormat.grammar()); err != nil {
		return err
	}
	echoes := make([]string, len(g.prompts))
	if c.Echo {
		for i, ids := range g.prompts {
			if echoes[i], err = s.model.Tokenizer.Decode(ids, true); err != nil {
				return refuse("prompt", "%v", err)
			}
		}
	}
	j, release, err := s.start(r, g)
	if err != nil {
		return err
	}
	defer release()
	out := completion{ID: g.id, Object: "text_completion", Created: created(), Model: g.model}
	if c.Stream {
		return s.streamCompletion(w, r, &c, g, j, echoes, out)
	}
	results, offsets, total := make([]textChoice, len(j.choices)), make([]int, len(j.choices)), usage{}
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
			offsets[ch.index] = res.LogProbs.add(s, said.tokens, offsets[ch.index])
		}
		if res.Text += said.text; said.done {
			reason := finishReason(said.reason)
			res.FinishReason = &reason
			total.add(said.usage)
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

func (s *Server) streamCompletion(w http.ResponseWriter, r *http.Request, c *completionRequest, g *generation, j *job, echoes []string, out completion) error {
	stream, offsets, total := newEvents(w), make([]int, len(j.choices)), usage{}
	prompts := make(map[int]int)
	begun := make([]bool, len(j.choices))
	err := j.each(r.Context(), func(ch *choice, said chunk) error {
		entry := textChoice{Index: ch.index, Text: said.text}
		if !begun[ch.index] {
			entry.Text, begun[ch.index] = echoes[ch.index/g.choices]+entry.Text, true
		}
		if g.logProbs && len(said.tokens) > 0 {
			entry.LogProbs = &textLogProbs{}
			offsets[ch.index] = entry.LogProbs.add(s, said.tokens, offsets[ch.index])
		}
		if said.done {
			reason := finishReason(said.reason)
			entry.FinishReason = &reason
			total.add(said.usage)
			prompts[ch.index/g.choices] = said.usage.PromptTokens
		} else if entry.Text == "" && entry.LogProbs == nil {
			return nil
		}
		out.Choices = []any{entry}
		return stream.send(out)
	})
	total.ofPrompts(prompts)
	stream.end(err, out, c.wanted(&total))
	return nil
}

// ofPrompts makes the prompt tokens those of several prompts, each counted once.
func (u *usage) ofPrompts(tokens map[int]int) {
	u.PromptTokens = 0
	for _, n := range tokens {
		u.PromptTokens += n
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}
