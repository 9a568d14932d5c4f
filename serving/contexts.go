package serving

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model/chat"
)

// Bounds of the contexts that have names.
const (
	maxContexts     = 1024
	maxContextBytes = 256 << 20 // of their messages
	maxTTL          = 10 * 365 * 24 * 3600
)

// namedContext is the beginning of conversations, which is evicted once, as the API tells it. What is left of it lies in the engine, and
// is made anew from the messages when it had to make room.
type namedContext struct {
	Name     string         `json:"name"`
	Object   string         `json:"object"`
	Created  int64          `json:"created"`
	Expires  int64          `json:"expires_at,omitempty"`
	Eviction evictionChoice `json:"eviction"`
	// Stays are the ranges of tokens that stay whatever the policy says.
	Stays  eviction.Keep `json:"stays,omitzero"`
	Tokens int           `json:"tokens"`
	// KeptEntries are those of a KV head and layer, in the mean.
	KeptEntries float64 `json:"kept_entries"`
	KeptBytes   int64   `json:"kept_bytes"`
	FullBytes   int64   `json:"full_bytes"` // of the cache without eviction; 0 where what was kept was there already
	PrefillMS   float64 `json:"prefill_ms"`
	// Kept are the tokens, where they are asked for: each a text, and the share of KV heads that keep it.
	Kept [][2]any `json:"kept,omitempty"`

	salt     string
	messages json.RawMessage
	tools    json.RawMessage
	bytes    int
}

// contexts are those that have names.
type contexts struct {
	files *contextFiles // nil: nothing is kept on disk
	mu    sync.Mutex
	named map[[2]string]*namedContext // by whose they are, and the name
	bytes int
}

// newContexts are those whose names are on disk.
func newContexts(files *contextFiles) (*contexts, error) {
	c := &contexts{named: make(map[[2]string]*namedContext)}
	if files == nil {
		return c, nil
	}
	all, err := files.readNames()
	if err != nil {
		return nil, fmt.Errorf("context folder: %w", err)
	}
	for _, n := range all {
		c.put(n) // what is too much stays on disk
	}
	c.files = files
	return c, nil
}

// clean forgets those whose time is over. The caller holds mu.
func (c *contexts) clean(now time.Time) {
	for key, n := range c.named {
		if n.Expires != 0 && now.Unix() >= n.Expires {
			c.remove(key)
		}
	}
}

// remove forgets one. The caller holds mu.
func (c *contexts) remove(key [2]string) {
	c.bytes -= c.named[key].bytes
	delete(c.named, key)
	if c.files != nil {
		c.files.removeName(key[0], key[1])
	}
}

// find is the context of a name.
func (c *contexts) find(salt, name string) (*namedContext, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clean(time.Now())
	if n, ok := c.named[[2]string{salt, name}]; ok {
		return n, nil
	}
	return nil, failure(http.StatusNotFound, invalidRequest, "context_not_found", "there is no context %.100q", name)
}

// put gives a context its name, in the place of another one.
func (c *contexts) put(n *namedContext) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clean(time.Now())
	key := [2]string{n.salt, n.Name}
	n.bytes = len(n.messages) + len(n.tools)
	others, bytes := len(c.named), c.bytes
	if before, there := c.named[key]; there {
		others, bytes = others-1, bytes-before.bytes
	}
	if others >= maxContexts || bytes+n.bytes > maxContextBytes {
		return failure(http.StatusInsufficientStorage, invalidRequest, "too_many_contexts", "%d contexts with %d bytes of messages have names: want at most %d with %d", len(c.named), c.bytes, maxContexts, maxContextBytes)
	}
	if c.files != nil {
		if err := c.files.putName(n); err != nil {
			return fmt.Errorf("context folder: %w", err)
		}
	}
	c.named[key], c.bytes = n, bytes+n.bytes
	return nil
}

// of are those of an owner, by name.
func (c *contexts) of(salt string) []*namedContext {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clean(time.Now())
	all := []*namedContext{}
	for _, n := range c.named {
		if n.salt == salt {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b *namedContext) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// contextRequest is the body of POST /v1/contexts.
type contextRequest struct {
	Name     string           `json:"name"`
	Model    string           `json:"model"`
	Messages json.RawMessage  `json:"messages"`
	Text     *string          `json:"text"` // a document, in the place of messages: what a user says, with an empty line behind it
	Tools    json.RawMessage  `json:"tools"`
	Eviction *evictionRequest `json:"eviction"`
	TTL      *int64           `json:"ttl"`    // seconds; nil: until it is deleted
	Stream   bool             `json:"stream"` // the answer is events, which tell how far the tokens have run
	Unknown  unknown          `json:",embed"`
}

// makeContext evicts the beginning of conversations, and gives it a name.
func (s *Server) makeContext(w http.ResponseWriter, r *http.Request) error {
	var b contextRequest
	if err := readJSON(r, &b); err != nil {
		return err
	}
	switch {
	case (b.Text == nil) == !given(b.Messages):
		return refuse("messages", "want messages, or the text of a document")
	case b.TTL != nil && (*b.TTL < 1 || *b.TTL > maxTTL):
		return refuse("ttl", "got %d, want 1 to %d seconds", *b.TTL, maxTTL)
	case b.Eviction != nil && b.Eviction.Context != "":
		return refuse("eviction.context", "a context begins with no other one")
	case len(b.Name) > 200 || strings.ContainsAny(b.Name, "/\x00"):
		return refuse("name", "want at most 200 bytes without a slash")
	}
	if b.Text != nil {
		b.Messages = json.RawMessage(jsonOf([]fields{{"role": "user", "content": *b.Text}}))
	}
	x, err := s.newExchange(r, "ctx_", &settings{Model: b.Model, Eviction: b.Eviction})
	if err != nil {
		return err
	}
	if err := x.policy.Compresses(); err != nil {
		return refuse("eviction.policy", "%v", err)
	}
	n := &namedContext{
		Name: b.Name, Object: "context", Created: time.Now().Unix(), salt: s.salt(x.owner), messages: b.Messages, tools: b.Tools,
		Eviction: evictionChoice{Policy: x.policy.Configured.Name, Budget: x.budget.String(), Adapter: x.policy.Adapter},
	}
	if x.budget.Whole() > 0 { // whose prompts below so many tokens are whole
		n.Eviction.Budget = ""
	}
	if b.TTL != nil {
		n.Expires = n.Created + *b.TTL
	}
	// What a user may say behind it is none of it.
	ids, err := n.encode(r.Context(), x)
	if err != nil {
		return err
	}
	if n.Name == "" {
		sum := sha256.Sum256([]byte(jsonOf(n.origin(ids))))
		n.Name = "ctx-" + hex.EncodeToString(sum[:10])
	}
	n.Tokens = len(ids)
	x.prompts, x.context, x.maxNew, x.n, x.progress = [][]int32{ids}, len(ids), 0, 1, b.Stream
	if err := x.checkPrompt(s, "messages", ids); err != nil {
		return err
	}
	if err := x.stay("messages", n.Stays); err != nil {
		return err
	}
	release, err := x.start(r)
	if err != nil {
		return err
	}
	defer release()
	if b.Stream {
		out := newEvents(w)
		told, err := x.nameContext(r.Context(), n, out)
		if err == nil {
			err = out.writeEvent(told)
		}
		out.end(err)
		return nil
	}
	told, err := x.nameContext(r.Context(), n, nil)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, told)
	return nil
}

// nameContext waits for what is left of the context, and gives it its name. The progress goes to out, unless that is nil.
func (x *exchange) nameContext(ctx context.Context, n *namedContext, out *events) (*namedContext, error) {
	ran := 0
	err := x.each(ctx, func(_ *choice, said chunk) error {
		if out == nil || said.ran == ran {
			return nil
		}
		ran = said.ran
		return out.writeEvent(fields{"object": "context.progress", "tokens_done": ran, "tokens": n.Tokens})
	})
	if err != nil {
		return nil, err
	}
	c, told := x.choices[0], *n
	if failed := x.server.worker.do(func() {
		n.tell(c)
		told = *n
		if c.texts != nil {
			told.Kept, err = c.keptTokens()
		}
	}); failed != nil {
		err = failed
	}
	if err == nil {
		err = x.server.contexts.put(n)
	}
	return &told, err
}

// tell takes down what was kept; it is the worker's own.
func (n *namedContext) tell(c *choice) {
	s := c.session()
	n.KeptEntries = float64(s.Cache.Pairs()) / float64(s.Cache.Heads())
	n.KeptBytes, n.FullBytes = s.Context.Bytes(), s.Context.FullBytes
	n.PrefillMS = float64(s.PrefillTime) / float64(time.Millisecond)
}

// origin is what a context without a name of its own is called by.
func (n *namedContext) origin(ids []int32) []any {
	if n.Stays.IsZero() {
		return []any{n.Eviction, ids}
	}
	return []any{n.Eviction, n.Stays, ids}
}

// encode is the tokens of the context, which do not depend on what follows, with what stays of them.
func (n *namedContext) encode(ctx context.Context, x *exchange) ([]int32, error) {
	s := x.server
	c := &conversation{named: n, compresses: true, Messages: json.RawMessage(`[{"role":"user","content":"x"}]`)}
	text, err := c.render(ctx, s.model.Model)
	if err == nil && c.cut == 0 {
		err = refuse("messages", "the chat template of model %s has no beginning that stays when something follows", s.model.Name)
	}
	if err != nil {
		return nil, err
	}
	ids, err := encode(s.model.Model, text[:c.cut], false)
	if err != nil || x.policy.Configured.Name == engine.Lossless {
		return ids, err
	}
	x.rules.Last = false // what follows is the last message
	c.rendered.IDs, c.rendered.Context = ids, c.cut
	keep, err := x.rules.Of(ctx, s.model.Tokenizer, &c.rendered)
	if err != nil {
		return nil, refuse("eviction.keep", "%v", err)
	}
	n.Stays = keep
	return ids, nil
}

// behind puts the messages of the named context before those of the conversation. What a user says goes on in one message with what the
// context ends with, if a user says that, behind an empty line.
func (c *conversation) behind(messages []chat.Message) ([]chat.Message, error) {
	if c.named == nil {
		return messages, nil
	}
	if given(c.named.tools) {
		if given(c.Tools) {
			return nil, refuse("tools", "the context %.100q has tools already", c.named.Name)
		}
		c.Tools = c.named.tools
	}
	own := conversation{Messages: c.named.messages}
	before, err := own.readMessages(context.Background())
	if err != nil {
		return nil, err
	}
	c.parts = own.parts
	if len(messages) > 0 && messages[0].Role == "system" && before[0].Role == "system" {
		return nil, refuse("messages[0]", "the context %.100q has a system prompt already", c.named.Name)
	}
	at := len(before) - 1
	last := &before[at]
	if len(messages) > 0 && last.Role == "user" && messages[0].Role == "user" {
		last.Content += "\n\n"
		c.marks = []mark{{at, len(last.Content)}}
		last.Content += messages[0].Content
		return append(before, messages[1:]...), nil
	}
	c.marks = []mark{{at, len(last.Content)}}
	return append(before, messages...), nil
}

func (s *Server) listContexts(w http.ResponseWriter, r *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": s.contexts.of(s.salt(ownerOf(r)))})
	return nil
}

func (s *Server) getContext(w http.ResponseWriter, r *http.Request) error {
	n, err := s.contexts.find(s.salt(ownerOf(r)), r.PathValue("name"))
	if err == nil {
		writeJSON(w, http.StatusOK, n)
	}
	return err
}

func (s *Server) deleteContext(w http.ResponseWriter, r *http.Request) error {
	n, err := s.contexts.find(s.salt(ownerOf(r)), r.PathValue("name"))
	if err != nil {
		return err
	}
	s.contexts.mu.Lock()
	defer s.contexts.mu.Unlock()
	if key := [2]string{n.salt, n.Name}; s.contexts.named[key] == n {
		s.contexts.remove(key)
	}
	writeJSON(w, http.StatusOK, fields{"name": n.Name, "object": "context", "deleted": true})
	return nil
}
