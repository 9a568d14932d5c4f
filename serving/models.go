package serving

import (
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
	Adapter   string `json:"adapter,omitempty"` // or draft
	Budget    string `json:"budget"`            // of requests that name another policy, too
	FullBelow int    `json:"full_below"`        // tokens of a prompt that is kept whole where a request names no budget
	Lossy     bool   `json:"lossy"`             // answers may differ from the full cache's
}

func (s *Server) info() modelInfo {
	return modelInfo{
		ID: s.Name, Object: "model", Created: s.started.Unix(), OwnedBy: "glimpse", MaxModelLen: s.model.Config.MaxPositions,
		Eviction: evictionOfServer{s.Policy, s.standard.Adapter, s.Budget.String(), s.Budget.Whole(), s.Policy != engine.Lossless},
	}
}

// policyInfo is a policy as /v1/models describes it.
type policyInfo struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"` // when it evicts
	Doc     string `json:"doc"`
	Adapter string `json:"adapter,omitempty"` // the kind that it needs
	Needs   string `json:"needs,omitempty"`   // what else: draft or pattern
}

func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) error {
	var details []policyInfo
	for name, p := range eviction.Policies.All() {
		info := policyInfo{Name: name, Kind: p.Kind, Doc: p.Doc, Adapter: p.Adapter}
		switch {
		case p.Pattern:
			info.Needs = "pattern"
		case p.Draft:
			info.Needs = "draft"
		}
		details = append(details, info)
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []modelInfo{s.info()}, "policies": eviction.Policies.Names(), "policy_details": details})
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
		ids, _, err = t.encode(r.Context(), s.model.Model)
	}
	if err != nil {
		return err
	}
	if ids == nil {
		ids = []int32{}
	}
	worked(r, len(ids))
	writeJSON(w, http.StatusOK, map[string]any{"tokens": ids, "count": len(ids), "max_model_len": s.model.Config.MaxPositions})
	return nil
}

// tokenizerInfo is what vLLM's endpoint of that name says; lm-eval asks there for tokens of the server.
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
	worked(r, 0)
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
	worked(r, 0)
	writeJSON(w, http.StatusOK, map[string]string{"prompt": text})
	return nil
}
