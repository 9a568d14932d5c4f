package serving

import (
	"encoding/json"
	"net/http"
	"strings"

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
	Unread              unread          `json:",embed"`
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

// readRequest reads the request.
func (c *chatRequest) readRequest(s *Server, r *http.Request) (*generation, error) {
	if err := readJSON(r, c); err != nil {
		return nil, err
	}
	c.bound("max_completion_tokens", c.MaxCompletionTokens)
	g, err := s.generation("chatcmpl-", &c.settings)
	if err != nil {
		return nil, err
	}
	if c.TopLogProbs != nil {
		if !or(c.LogProbs, false) {
			return nil, refuse("top_logprobs", "want logprobs to be true")
		}
		if g.top, err = topLogProbs("top_logprobs", *c.TopLogProbs); err != nil {
			return nil, err
		}
	}
	g.logProbs = or(c.LogProbs, false)
	ids, err := c.encode(r.Context(), s.model.Model)
	if err != nil {
		return nil, err
	}
	g.prompts, g.conversation = [][]int32{ids}, true
	return g, g.checkPrompt(s, "messages", ids)
}

func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	var c chatRequest
	g, err := c.readRequest(s, r)
	if err != nil {
		return err
	}
	grammar, err := c.ResponseFormat.grammar()
	if err != nil {
		return err
	}
	replies, err := s.newReplies(r.Context(), g, &c.conversation, grammar)
	if err != nil {
		return err
	}
	j, release, err := s.start(r, g)
	if err != nil {
		return err
	}
	defer release()
	out := completion{ID: g.id, Object: "chat.completion", Created: created(), Model: g.model}
	if c.Stream {
		out.Object += ".chunk"
		return s.streamChat(w, r, &c, g, j, replies, out)
	}
	type result struct {
		message  chatMessage
		logProbs []tokenLogProb
		reason   string
	}
	results, total := make([]result, len(j.choices)), usage{}
	err = j.each(r.Context(), func(ch *choice, said chunk) error {
		res := &results[ch.index]
		res.logProbs = append(res.logProbs, said.tokens...)
		for _, d := range replies.takeText(ch.index, said.text, said.done) {
			res.message.addDelta(d)
		}
		if said.done {
			res.reason = replies.finishReason(ch.index, said.reason)
			total.addUsage(said.usage)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range results {
		res := &results[i]
		res.message.Role = "assistant"
		if res.message.Content == nil && len(res.message.ToolCalls) == 0 {
			res.message.Content = new(string)
		}
		entry := chatChoice{Index: i, Message: &res.message, FinishReason: &res.reason}
		if g.logProbs {
			entry.LogProbs = chatLogProbsOf(s.model.Tokenizer, res.logProbs)
		}
		out.Choices = append(out.Choices, entry)
	}
	out.Usage = &total
	writeJSON(w, http.StatusOK, out)
	return nil
}

// streamChat streams: the role first, one finish_reason for every choice, and the usage last where it is asked for.
func (s *Server) streamChat(w http.ResponseWriter, r *http.Request, c *chatRequest, g *generation, j *job, replies *replies, out completion) error {
	stream := newEvents(w)
	out.Usage = c.pending()
	send := func(entry chatChoice) error {
		out.Choices = []any{entry}
		return stream.writeEvent(out)
	}
	empty := ""
	var total usage
	for i := range j.choices {
		if err := send(chatChoice{Index: i, Delta: &chatMessage{Role: "assistant", Content: &empty}}); err != nil {
			j.hangUp()
			return err
		}
	}
	err := j.each(r.Context(), func(ch *choice, said chunk) error {
		logProbs := (*chatLogProbs)(nil)
		if g.logProbs && len(said.tokens) > 0 {
			logProbs = chatLogProbsOf(s.model.Tokenizer, said.tokens)
		}
		deltas := replies.takeText(ch.index, said.text, said.done)
		if len(deltas) == 0 && logProbs != nil {
			deltas = append(deltas, toolcall.Delta{})
		}
		for _, d := range deltas {
			entry := chatChoice{Index: ch.index, Delta: deltaOf(d), LogProbs: logProbs}
			logProbs = nil
			if err := send(entry); err != nil {
				return err
			}
		}
		if !said.done {
			return nil
		}
		total.addUsage(said.usage)
		reason := replies.finishReason(ch.index, said.reason)
		return send(chatChoice{Index: ch.index, Delta: &chatMessage{}, FinishReason: &reason})
	})
	stream.endStream(err, out, c.wanted(&total))
	return nil
}

func jsonOf(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // of our own types
	}
	return string(raw)
}
