package serving

import (
	"errors"
	"io/fs"
	"maps"
	"net/http"

	"glimpse/engine"
	"glimpse/eviction"
)

// modelInfo is a model as /v1/models lists it.
type modelInfo struct {
	ID          string           `json:"id"`
	Object      string           `json:"object"`
	Created     int64            `json:"created"`
	OwnedBy     string           `json:"owned_by"`
	MaxModelLen int              `json:"max_model_len"`
	Eviction    evictionOfServer `json:"eviction"` // of requests that name none
}

// evictionOfServer is what answers a request that names no policy.
type evictionOfServer struct {
	Policy    string `json:"policy"`
	Budget    string `json:"budget"`     // of requests that name another policy, too
	FullBelow int    `json:"full_below"` // tokens of a prompt that is kept whole where a request names no budget
	Lossy     bool   `json:"lossy"`      // answers may differ from the full cache's
}

func (s *Server) info() modelInfo {
	return modelInfo{
		ID: s.Name, Object: "model", Created: s.started.Unix(), OwnedBy: "glimpse", MaxModelLen: s.model.Config.MaxPositions,
		Eviction: evictionOfServer{s.Policy, s.Budget.String(), s.Budget.Whole(), s.Policy != engine.Lossless},
	}
}

func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelInfo{s.info()}, "policies": eviction.Policies.Names()})
	return nil
}

func (s *Server) getModel(w http.ResponseWriter, r *http.Request) error {
	if name := r.PathValue("model"); name != s.Name {
		return failure(http.StatusNotFound, invalidRequest, "model_not_found", "the model %.100q does not exist", name)
	}
	writeJSON(w, http.StatusOK, s.info())
	return nil
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) error {
	var t struct {
		conversation
		Model      string  `json:"model"`
		Prompt     *string `json:"prompt"`  // vLLM's name
		Content    *string `json:"content"` // llama.cpp's
		AddSpecial *bool   `json:"add_special_tokens"`
		Unread     unread  `json:",embed"`
	}
	if err := readJSON(r, &t); err != nil {
		return err
	}
	if t.Prompt == nil {
		t.Prompt = t.Content
	}
	var ids []int32
	var err error
	switch {
	case t.Prompt != nil && t.Messages != nil:
		return refuse("prompt", "got messages, too: want one of them")
	case t.Prompt != nil:
		ids, err = encode(s.model.Model, *t.Prompt, or(t.AddSpecial, true))
	default:
		ids, err = t.encode(r.Context(), s.model.Model)
	}
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []int32{}
	}
	writeJSON(w, http.StatusOK, map[string]any{"tokens": ids, "count": len(ids), "max_model_len": s.model.Config.MaxPositions})
	return nil
}

// tokenizerInfo is what vLLM's endpoint of that name says, by which lm-eval asks for tokens of the server.
func (s *Server) tokenizerInfo(w http.ResponseWriter, _ *http.Request) error {
	t, err := s.model.NeedTokenizer()
	if err != nil {
		return refuse("", "%v", err)
	}
	c := t.Config()
	info := map[string]any{"bos_token": nil, "eos_token": nil, "pad_token": nil, "unk_token": nil, "chat_template": nil, "model_max_length": s.model.Config.MaxPositions}
	if c.EOS == "" && len(s.model.Config.EOS) > 0 {
		c.EOS, _ = t.IDToToken(s.model.Config.EOS[0])
	}
	for name, text := range map[string]string{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.PAD, "unk_token": c.UNK, "chat_template": c.ChatTemplate} {
		if text != "" {
			info[name] = text
		}
	}
	writeJSON(w, http.StatusOK, info)
	return nil
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) error {
	var t struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
		Unread unread  `json:",embed"`
	}
	if err := readJSON(r, &t); err != nil {
		return err
	}
	tokenizer, err := s.model.NeedTokenizer()
	if err != nil {
		return refuse("", "%v", err)
	}
	text, err := tokenizer.Decode(t.Tokens, false)
	if err != nil {
		return refuse("tokens", "%v", err)
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": text})
	return nil
}

func (s *Server) applyTemplate(w http.ResponseWriter, r *http.Request) error {
	var t struct {
		conversation
		Model  string `json:"model"`
		Unread unread `json:",embed"`
	}
	if err := readJSON(r, &t); err != nil {
		return err
	}
	text, err := t.render(r.Context(), s.model.Model)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]string{"prompt": text})
	return nil
}

// adapterInfo is an adapter as the API tells it.
type adapterInfo struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Policy string `json:"policy"`
	SHA256 string `json:"sha256"`
	From   string `json:"from"`
}

func (s *Server) listAdapters(w http.ResponseWriter, _ *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []adapterInfo{}
	for _, a := range s.model.Adapters() {
		all = append(all, adapterInfo(a))
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": all})
	return nil
}

// loadAdapter loads an adapter while others answer.
func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) error {
	var a struct {
		Name    string  `json:"name"`
		From    string  `json:"from"`
		Unknown unknown `json:",embed"`
	}
	if err := readJSON(r, &a); err != nil {
		return err
	}
	if a.From == "" {
		return refuse("from", "is missing: want a folder or s3:// name of an adapter")
	}
	spec := a.From
	if a.Name != "" {
		spec = a.Name + "=" + a.From
	}
	s.mu.Lock()
	err := s.model.AddAdapters(r.Context(), spec)
	s.mu.Unlock()
	switch {
	case errors.Is(err, engine.ErrAdapterName):
		return failure(http.StatusConflict, invalidRequest, "adapter_exists", "%v", err)
	case err != nil:
		return refuse("from", "%v", err)
	}
	s.Log.Info("adapter loaded", "name", a.Name, "from", a.From)
	return s.listAdapters(w, r)
}

// unloadAdapter forgets an adapter. Answers that use it go on.
func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	s.mu.Lock()
	err := s.model.RemoveAdapters(name)
	if err == nil {
		maps.DeleteFunc(s.policies, func(_ evictionChoice, p engine.Policy) bool { return p.Settings.Resources.Adapter != nil })
	}
	s.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return failure(http.StatusNotFound, invalidRequest, "adapter_not_found", "%v", err)
	}
	s.Log.Info("adapter unloaded", "name", name)
	return s.listAdapters(w, r)
}
