package serving

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"glimpse/model/tokenizer"
	"glimpse/serving/toolcall"
)

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	settings
	conversation
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	LogProbs            *bool           `json:"logprobs"`
	TopLogProbs         *int            `json:"top_logprobs"`
	ResponseFormat      *responseFormat `json:"response_format"`
	ReturnProgress      *bool           `json:"return_progress"` // llama.cpp's
	Unread              unread          `json:",embed"`
}

// promptProgress is how far a prompt has run, as llama.cpp tells it.
type promptProgress struct {
	Total     int   `json:"total"`     // tokens of the prompt
	Cache     int   `json:"cache"`     // of these, those that need not run
	Processed int   `json:"processed"` // tokens that have run or came from the cache
	TimeMS    int64 `json:"time_ms"`   // since the request
}

// completion is an answer of the API, or a part of one that is streamed.
type completion struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	Model   string  `json:"model"`
	Choices []any   `json:"choices"`
	Usage   any     `json:"usage,omitempty"` // *usage; a nil one is null, in the parts of a stream before the last
	Print   *string `json:"system_fingerprint"`

	Progress *promptProgress `json:"prompt_progress,omitempty"` // of a part that has no choices
}

// completion begins one.
func (x *exchange) completion(object string) completion {
	return completion{ID: x.id, Object: object, Created: time.Now().Unix(), Model: x.model}
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      *chatMessage  `json:"message,omitempty"`
	Delta        *chatMessage  `json:"delta,omitempty"`
	LogProbs     *chatLogProbs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

type chatMessage struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning *string    `json:"reasoning_content,omitempty"` // DeepSeek's, llama.cpp's and vLLM's field
	Refusal   *string    `json:"refusal,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type chatLogProbs struct {
	Content []chatLogProb `json:"content"`
}

type chatLogProb struct {
	chatToken
	Top []chatToken `json:"top_logprobs"`
}

type chatToken struct {
	Token   string  `json:"token"`
	LogProb float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

// chatLogProbsOf are the log-probabilities of tokens.
func chatLogProbsOf(t *tokenizer.Tokenizer, tokens []tokenLogProb) *chatLogProbs {
	one := func(id int32, p float64) chatToken {
		piece := t.Piece(id)
		out := chatToken{Token: strings.ToValidUTF8(piece, "\uFFFD"), LogProb: p, Bytes: []int{}}
		for i := range len(piece) {
			out.Bytes = append(out.Bytes, int(piece[i]))
		}
		return out
	}
	out := &chatLogProbs{Content: []chatLogProb{}}
	for _, token := range tokens {
		entry := chatLogProb{one(token.id, token.logProb), []chatToken{}}
		for _, p := range token.top {
			entry.Top = append(entry.Top, one(p.ID, p.LogProb))
		}
		out.Content = append(out.Content, entry)
	}
	return out
}

func (c *chatRequest) readRequest(s *Server, r *http.Request) (*exchange, error) {
	if err := readJSON(r, c); err != nil {
		return nil, err
	}
	c.bound("max_completion_tokens", c.MaxCompletionTokens)
	x, err := s.newExchange(r, "chatcmpl-", &c.settings)
	if err != nil {
		return nil, err
	}
	if c.TopLogProbs != nil {
		if !or(c.LogProbs, false) {
			return nil, refuse("top_logprobs", "want logprobs to be true")
		}
		if x.top, err = topLogProbs("top_logprobs", *c.TopLogProbs); err != nil {
			return nil, err
		}
	}
	x.logProbs = or(c.LogProbs, false)
	if err := x.encode(r.Context(), &c.conversation); err != nil {
		return nil, err
	}
	return x, x.checkPrompt(s, "messages", x.prompts[0])
}

func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	var c chatRequest
	x, err := c.readRequest(s, r)
	if err != nil {
		return err
	}
	grammar, err := c.ResponseFormat.grammar()
	if err != nil {
		return err
	}
	x.progress = c.Stream && or(c.ReturnProgress, false)
	a := &chatAnswers{exchange: x, out: x.completion("chat.completion"), results: make([]chatResult, x.n)}
	if a.replies, err = s.newReplies(r.Context(), x, &c.conversation, grammar); err != nil {
		return err
	}
	release, err := x.start(r)
	if err != nil {
		return err
	}
	defer release()
	if c.Stream {
		a.stream, a.out.Usage, a.out.Object = newEvents(w), c.pending(), "chat.completion.chunk"
		if err := a.sendRoles(); err != nil {
			x.hangUp()
			return err
		}
	}
	err = x.each(r.Context(), a.addChunk)
	if c.Stream {
		a.stream.endStream(err, a.out, c.wanted(&a.total))
		return nil
	}
	if err != nil {
		return err
	}
	for i := range a.results {
		res := &a.results[i]
		res.message.Role = "assistant"
		if res.message.Content == nil && len(res.message.ToolCalls) == 0 {
			res.message.Content = new(string)
		}
		a.out.Choices = append(a.out.Choices, chatChoice{Index: i, Message: &res.message, FinishReason: &res.reason, LogProbs: a.logProbsOf(res.logProbs)})
	}
	a.out.Usage = &a.total
	writeJSON(w, http.StatusOK, a.out)
	return nil
}

// chatAnswers are the answers of /v1/chat/completions as they grow.
type chatAnswers struct {
	*exchange
	replies *replies
	out     completion
	results []chatResult // by choice; of a stream nothing
	total   usage
	stream  *events // nil: they are sent whole
	ran     int     // tokens of the prompt, as was told last
}

// chatResult is an answer that is sent whole.
type chatResult struct {
	message  chatMessage
	logProbs []tokenLogProb
	reason   string
}

// logProbsOf are the log-probabilities of tokens; nil where they are not asked for.
func (a *chatAnswers) logProbsOf(tokens []tokenLogProb) *chatLogProbs {
	if !a.logProbs {
		return nil
	}
	return chatLogProbsOf(a.server.model.Tokenizer, tokens)
}

// sendRoles sends the role of every choice.
func (a *chatAnswers) sendRoles() error {
	for i := range a.n {
		if err := a.send(chatChoice{Index: i, Delta: &chatMessage{Role: "assistant", Content: new(string)}}); err != nil {
			return err
		}
	}
	return nil
}

func (a *chatAnswers) send(entry chatChoice) error {
	a.out.Choices = []any{entry}
	return a.stream.writeEvent(a.out)
}

// addChunk takes what a choice says. A stream has one finish_reason for every choice.
func (a *chatAnswers) addChunk(c *choice, said chunk) error {
	if a.progress && c.index == 0 && said.ran > a.ran {
		a.ran = said.ran
		part := a.out
		part.Choices = []any{}
		part.Progress = &promptProgress{len(c.request.Prompt), said.cached, said.ran, time.Since(c.entered).Milliseconds()}
		if err := a.stream.writeEvent(part); err != nil {
			return err
		}
	}
	deltas := a.replies.takeText(c.index, said.text, said.done)
	reason := ""
	if said.done {
		reason = a.replies.finishReason(c.index, said.reason)
		a.total.addUsage(said.usage)
	}
	if a.stream == nil {
		res := &a.results[c.index]
		res.logProbs, res.reason = append(res.logProbs, said.tokens...), reason
		for _, d := range deltas {
			res.message.addDelta(d)
		}
		return nil
	}
	var logProbs *chatLogProbs
	if len(said.tokens) > 0 {
		if logProbs = a.logProbsOf(said.tokens); len(deltas) == 0 && logProbs != nil {
			deltas = append(deltas, toolcall.Delta{})
		}
	}
	for _, d := range deltas {
		if err := a.send(chatChoice{Index: c.index, Delta: deltaOf(d), LogProbs: logProbs}); err != nil {
			return err
		}
		logProbs = nil
	}
	if !said.done {
		return nil
	}
	return a.send(chatChoice{Index: c.index, Delta: &chatMessage{}, FinishReason: &reason})
}

func jsonOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // of our own types
	}
	return string(raw)
}
