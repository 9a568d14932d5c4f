package serving

// toolCall is a call of a function, or a part of one that is streamed.
type toolCall struct {
	Index    *int         `json:"index,omitempty"`
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// delta is a part of an answer: text, or a part of a call.
type delta struct {
	Content string
	Call    *callDelta
}

type callDelta struct {
	Index           int
	Name, Arguments string
}

type calls struct{}

func (s *Server) newCalls(g *generation, c *chatRequest) (*calls, error) { return &calls{}, nil }

func (c *calls) push(i int, text string, done bool) []delta {
	if text == "" {
		return nil
	}
	return []delta{{Content: text}}
}

func (m *chatMessage) take(d delta) {}

func (d delta) message() *chatMessage { return &chatMessage{Content: &d.Content} }
