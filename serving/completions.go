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

// readRequest reads the request, with the texts that its answers begin with.
func (c *completionRequest) readRequest(s *Server, r *http.Request) (x *exchange, echoes []string, err error) {
	if err := readJSON(r, c); err != nil {
		return nil, nil, err
	}
	c.rename()
	most := or(c.MaxTokens, defaultMaxTokens)
	if c.MaxTokens = &most; most == 0 { // which only /v1/completions takes
		c.MaxTokens = nil
	}
	if x, err = s.newExchange(r, "cmpl-", &c.settings); err != nil {
		return nil, nil, err
	}
	if x.named != nil {
		return nil, nil, refuse("eviction.context", "a context comes before messages, and the request has a prompt")
	}
	if most == 0 {
		x.maxNew = 0
	}
	if c.LogProbs != nil || c.Echo {
		if _, err := s.model.NeedTokenizer(); err != nil {
			return nil, nil, refuse("", "%v", err)
		}
	}
	if c.LogProbs != nil {
		if x.top, err = topLogProbs("logprobs", *c.LogProbs); err != nil {
			return nil, nil, err
		}
		x.logProbs, x.endLogProbs, x.promptLogProbs = true, true, c.Echo
	}
	var texts []string
	if x.prompts, texts, err = s.promptsOf(r.Context(), c.Prompt, or(c.AddSpecial, true)); err != nil {
		return nil, nil, err
	}
	if len(x.prompts)*x.n > maxChoices {
		return nil, nil, refuse("prompt", "got %d prompts with %d answers each, want at most %d answers", len(x.prompts), x.n, maxChoices)
	}
	for _, ids := range x.prompts {
		if err := x.checkPrompt(s, "prompt", ids); err != nil {
			return nil, nil, err
		}
	}
	if err := x.stayTexts(texts); err != nil {
		return nil, nil, err
	}
	if err := x.constrain(c.ResponseFormat.grammar()); err != nil {
		return nil, nil, err
	}
	if c.Echo && texts != nil {
		return x, texts, nil
	}
	echoes = make([]string, len(x.prompts))
	for i, ids := range x.prompts {
		if !c.Echo {
			break
		}
		if echoes[i], err = s.model.Tokenizer.Decode(ids, false); err != nil {
			return nil, nil, refuse("prompt", "%v", err)
		}
	}
	return x, echoes, nil
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	var c completionRequest
	x, echoes, err := c.readRequest(s, r)
	if err != nil {
		return err
	}
	a := &textAnswers{exchange: x, out: x.completion("text_completion"), prompts: make(map[int]int)}
	for i := range len(x.prompts) * x.n {
		a.results = append(a.results, a.part(i, echoes[i/x.n]))
		if x.logProbs {
			a.followed = append(a.followed, x.newTextTokens(x.prompts[i/x.n], echoes[i/x.n]))
		}
	}
	release, err := x.start(r)
	if err != nil {
		return err
	}
	defer release()
	if c.Stream {
		a.stream, a.out.Usage = newEvents(w), c.pending()
	}
	err = x.each(r.Context(), a.addChunk)
	a.total.ofPrompts(a.prompts)
	if c.Stream {
		a.stream.endStream(err, a.out, c.wanted(&a.total))
		return nil
	}
	if err != nil {
		return err
	}
	for _, res := range a.results {
		a.out.Choices = append(a.out.Choices, res)
	}
	a.out.Usage = &a.total
	writeJSON(w, http.StatusOK, a.out)
	return nil
}

// textAnswers are the answers of /v1/completions as they grow.
type textAnswers struct {
	*exchange
	out      completion
	results  []textChoice  // by choice; of a stream what it has yet to send
	followed []*textTokens // by choice, where log-probabilities are asked for
	total    usage
	prompts  map[int]int // tokens, by prompt
	stream   *events     // nil: they are sent whole
}

// part is what begins with a text.
func (a *textAnswers) part(i int, text string) textChoice {
	out := textChoice{Index: i, Text: text}
	if a.logProbs {
		out.LogProbs = &textLogProbs{}
	}
	return out
}

// addChunk takes what a choice says.
func (a *textAnswers) addChunk(c *choice, said chunk) error {
	res := &a.results[c.index]
	res.Text += said.text
	if a.logProbs {
		a.followed[c.index].addTokens(res.LogProbs, said.tokens)
	}
	if said.done {
		reason := finishReason(said.reason)
		res.FinishReason = &reason
		a.total.addUsage(said.usage)
		a.prompts[c.index/a.n] = said.usage.PromptTokens
	}
	if a.stream == nil {
		return nil
	}
	entry := *res
	if a.logProbs && len(entry.LogProbs.Tokens) == 0 {
		entry.LogProbs = nil
	}
	if !said.done && entry.Text == "" && entry.LogProbs == nil {
		return nil
	}
	*res = a.part(c.index, "")
	a.out.Choices = []any{entry}
	return a.stream.writeEvent(a.out)
}

// ofPrompts makes the prompt tokens the sum of several prompts', each counted once.
func (u *usage) ofPrompts(tokens map[int]int) {
	u.PromptTokens = 0
	for _, n := range tokens {
		u.PromptTokens += n
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
}
