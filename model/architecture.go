package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// textConfig is the config.json of the text model in one of text and images, or sound, as if it were alone, and a note that
// says so; of any other model raw itself.
func textConfig(raw json.RawMessage) (_ json.RawMessage, note string, err error) {
	var whole, text map[string]json.RawMessage
	var architectures []string
	if err := json.Unmarshal(raw, &whole); err != nil || !given(whole["text_config"]) {
		return raw, "", nil // whoever reads it says what is wrong
	}
	if err := json.Unmarshal(whole["text_config"], &text); err != nil {
		return nil, "", fmt.Errorf("text_config: %w", err)
	}
	if json.Unmarshal(whole["architectures"], &architectures); len(architectures) > 0 && slices.Contains(Families.Names(), architectures[0]) {
		return raw, "", nil
	}
	for _, key := range []string{"bos_token_id", "eos_token_id", "tie_word_embeddings", "torch_dtype", "dtype", "quantization_config"} {
		if value, ok := whole[key]; ok && !given(text[key]) {
			text[key] = value
		}
	}
	var kind string
	if json.Unmarshal(text["model_type"], &kind); strings.HasSuffix(kind, "_text") {
		text["model_type"], _ = json.Marshal(strings.TrimSuffix(kind, "_text"))
	}
	raw, err = json.Marshal(text)
	return raw, fmt.Sprintf("config.json: %s is of more than text; its text model is used", strings.Join(architectures, ", ")), err
}

// architectureOf is the name of the family that config.json asks for: architectures[0],
// or without one that of model_type, as transformers' AutoModelForCausalLM has it.
func architectureOf(architectures []string, modelType string) (string, error) {
	// The classes are called as the types are, but for case and the underscores. The first
	// Llama models say LLaMAForCausalLM.
	plain := func(s string) string { return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s)) }
	if len(architectures) > 0 {
		for _, name := range Families.Names() {
			if plain(name) == plain(architectures[0]) {
				return name, nil
			}
		}
		return architectures[0], nil
	}
	list := strings.Join(Families.Names(), ", ")
	if modelType == "" {
		return "", fmt.Errorf("architectures: got none, and no model_type, want one of: %s", list)
	}
	for _, name := range Families.Names() {
		if base, ok := strings.CutSuffix(name, "ForCausalLM"); ok && plain(base) == plain(modelType) {
			return name, nil
		}
	}
	return "", fmt.Errorf("architectures: got none, and model_type: unknown %.60q, want one of architectures: %s", modelType, list)
}

// activationOf is the plain name of an activation that transformers (ACT2FN) knows by
// several.
func activationOf(name string) string {
	switch name {
	case "swish":
		return "silu"
	case "gelu_python":
		return "gelu"
	}
	return name
}
