package model

import (
	"encoding/json"
	"fmt"
	"strings"
)

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
		if base, ok := strings.CutSuffix(name, "ForCausalLM"); ok && plain(base) == plain(strings.TrimSuffix(modelType, "_text")) {
			return name, nil
		}
	}
	return "", fmt.Errorf("architectures: got none, and model_type: unknown %.60q, want one of architectures: %s", modelType, list)
}

// textConfig is the config.json of the text model in one of a model of text and images or sound, and the architecture of
// that; raw itself, and nothing, where it is of a text model. Keys that the inner one leaves to the outer are those that
// transformers asks the outer for.
func textConfig(raw json.RawMessage) (text json.RawMessage, multimodal string, err error) {
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(raw, &outer); err != nil {
		return nil, "", err
	}
	var architectures []string
	if given(outer["architectures"]) {
		if err := json.Unmarshal(outer["architectures"], &architectures); err != nil {
			return nil, "", fmt.Errorf("architectures: %w", err)
		}
	}
	if !given(outer["text_config"]) || len(architectures) == 0 || strings.HasSuffix(architectures[0], "ForCausalLM") {
		return raw, "", nil
	}
	var inner map[string]json.RawMessage
	if err := json.Unmarshal(outer["text_config"], &inner); err != nil {
		return nil, "", fmt.Errorf("text_config: %w", err)
	}
	delete(inner, "architectures") // of some the text model alone, of others nothing that is known: model_type decides
	for _, key := range []string{"bos_token_id", "eos_token_id", "tie_word_embeddings", "quantization_config", "torch_dtype", "dtype"} {
		if _, ok := inner[key]; !ok && outer[key] != nil {
			inner[key] = outer[key]
		}
	}
	var modelType string
	if given(inner["model_type"]) {
		if err := json.Unmarshal(inner["model_type"], &modelType); err != nil {
			return nil, "", fmt.Errorf("text_config: model_type: %w", err)
		}
	}
	if inner["model_type"], err = json.Marshal(strings.TrimSuffix(modelType, "_text")); err != nil {
		return nil, "", err
	}
	text, err = json.Marshal(inner)
	return text, architectures[0], err
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
