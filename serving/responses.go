package serving

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sort"
	"time"
)

// responseRequest is the body of /v1/responses.
type responseRequest struct {
	settings
	Input           json.RawMessage   `json:"input"`
	Instructions    string            `json:"instructions"`
	MaxOutputTokens *int              `json:"max_output_tokens"`
	Tools           []json.RawMessage `json:"tools"`
	ToolChoice      json.RawMessage   `json:"tool_choice"`
	Parallel        *bool             `json:"parallel_tool_calls"`
	Text            *struct {
		Format json.RawMessage `json:"format"`
		Unread unread          `json:",embed"`
	} `json:"text"`
	Reasoning *struct {
		Effort *string `json:"effort"`
		Unread unread  `json:",embed"`
	} `json:"reasoning"`
	Template     map[string]json.RawMessage `json:"chat_template_kwargs"`
	TopLogProbs  *int                       `json:"top_logprobs"`
	Include      []string                   `json:"include"`
	Truncation   string                     `json:"truncation"`
	Background   bool                       `json:"background"`
	Previous     json.RawMessage            `json:"previous_response_id"`
	Conversation json.RawMessage            `json:"conversation"`
	Unread       unread                     `json:",embed"`

	named map[string]responseTool // tools by the names that the model calls them by
}

// encrypted tells that thoughts are wanted opaque.
func (r *responseRequest) encrypted() bool {
	return slices.Contains(r.Include, "reasoning.encrypted_content")
}

// readRequest reads the request as the one of a chat that it stands for.
func (r *responseRequest) readRequest(s *Server, req *http.Request) (*exchange, *replies, error) {
	ctx := req.Context()
	if err := readJSON(req, r); err != nil {
		return nil, nil, err
	}
	switch {
	case given(r.Previous), given(r.Conversation):
		field := "previous_response_id"
		if given(r.Conversation) {
			field = "conversation"
		}
		return nil, nil, refuse(field, "answers are not stored: send the whole conversation, whose beginning is found again").coded("previous_response_not_found")
	case r.Background:
		return nil, nil, refuse("background", "is not supported")
	case or(r.N, 1) != 1:
		return nil, nil, refuse("n", "got %d, want 1", *r.N)
	case r.Truncation != "" && r.Truncation != "disabled" && r.Truncation != "auto":
		return nil, nil, refuse("truncation", "got %q, want auto or disabled", r.Truncation)
	}
	r.bound("max_output_tokens", r.MaxOutputTokens)
	x, err := s.newExchange(req, "resp_", &r.settings)
	if err != nil {
		return nil, nil, err
	}
	if x.logProbs = slices.Contains(r.Include, "message.output_text.logprobs"); r.TopLogProbs != nil {
		if x.top, err = topLogProbs("top_logprobs", *r.TopLogProbs); err != nil {
			return nil, nil, err
		}
	}
	c := conversation{Template: r.Template, Parallel: r.Parallel}
	if r.Reasoning != nil {
		c.Effort = r.Reasoning.Effort
	}
	var f responseFormat
	if r.Text != nil && given(r.Text.Format) {
		if err := f.ofText(ctx, r.Text.Format); err != nil {
			return nil, nil, err
		}
	}
	grammar, err := f.grammar()
	if err != nil {
		return nil, nil, err
	}
	turns, err := r.readInput(ctx)
	if err != nil {
		return nil, nil, err
	}
	var tools []functionTool
	if tools, err = r.readTools(ctx); err != nil {
		return nil, nil, err
	}
	if len(tools) > 0 {
		c.Tools = json.RawMessage(jsonOf(tools))
	}
	if c.ToolChoice, err = r.readToolChoice(ctx); err != nil {
		return nil, nil, err
	}
	if err := turns.render(ctx, x, &c, r.Truncation == "auto"); err != nil {
		return nil, nil, err
	}
	if err := x.checkPrompt(s, "input", x.prompts[0]); err != nil {
		return nil, nil, err
	}
	replies, err := s.newReplies(ctx, x, &c, grammar)
	return x, replies, err
}

// render makes the turns the prompt of an exchange, as c has it rendered. Where it may be cut, a conversation that is too long loses
// its first messages, but for the system's.
func (t *turns) render(ctx context.Context, x *exchange, c *conversation, cut bool) error {
	t.endTurns()
	render := func(from int) error {
		c.Messages, c.translated = json.RawMessage(jsonOf(t.from(from))), true
		return x.encode(ctx, c)
	}
	if err := render(0); err != nil || !cut || x.fits() {
		return err
	}
	var starts []int
	for i := range t.all {
		if i > 0 && t.begins(i) {
			starts = append(starts, i)
		}
	}
	var err error
	at := sort.Search(len(starts), func(i int) bool {
		if err == nil {
			err = render(starts[i])
		}
		return err != nil || x.fits()
	})
	if err == nil && at < len(starts) {
		err = render(starts[at])
	}
	return err
}

// fits tells whether the context has room for the prompt and its answer.
func (x *exchange) fits() bool {
	n, most := len(x.prompts[0]), x.server.model.Config.MaxPositions
	return n < most && n+max(x.maxNew, 1) <= most+1
}

func (s *Server) responses(w http.ResponseWriter, req *http.Request) error {
	var r responseRequest
	x, replies, err := r.readRequest(s, req)
	if err != nil {
		return err
	}
	a := &responseAnswer{exchange: x, request: &r, created: time.Now().Unix()}
	return x.tellBlocks(w, req, &a.blocks, replies, r.Stream, a)
}
