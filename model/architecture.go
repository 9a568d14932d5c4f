package model

import (
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
