package checkpoints

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// peftConfig is adapter_config.json: PEFT's LoRA settings. The fields after
// InvocationTokens always have the values that newPEFTConfig gives them.
type peftConfig struct {
	BaseModel        string   `json:"base_model_name_or_path"`
	Rank             int      `json:"r"`
	Alpha            float64  `json:"lora_alpha"`
	TargetModules    []string `json:"target_modules"`
	InvocationTokens []int    `json:"alora_invocation_tokens"`

	PEFTType      string         `json:"peft_type"`
	TaskType      string         `json:"task_type"`
	Dropout       float64        `json:"lora_dropout"`
	Bias          string         `json:"bias"`
	InferenceMode bool           `json:"inference_mode"`
	FanInFanOut   bool           `json:"fan_in_fan_out"`
	UseRSLoRA     bool           `json:"use_rslora"`
	UseDoRA       bool           `json:"use_dora"`
	ModulesToSave *[]string      `json:"modules_to_save"`
	RankPattern   map[string]int `json:"rank_pattern"`
	AlphaPattern  map[string]int `json:"alpha_pattern"`
}

func newPEFTConfig(a *Adapter) peftConfig {
	return peftConfig{
		BaseModel:        a.Base.Name,
		Rank:             a.Rank,
		Alpha:            a.Alpha,
		TargetModules:    a.LoRAModules(),
		InvocationTokens: a.InvocationTokens,
		PEFTType:         "LORA",
		TaskType:         "CAUSAL_LM",
		Bias:             "none",
		InferenceMode:    true,
		RankPattern:      map[string]int{},
		AlphaPattern:     map[string]int{},
	}
}

// readPEFTConfig takes rank, alpha and invocation tokens over into the adapter.
func readPEFTConfig(data []byte, a *Adapter) (peftConfig, error) {
	var c peftConfig
	if err := decodeExact(data, &c); err != nil {
		return c, err
	}
	a.Rank, a.Alpha, a.InvocationTokens = c.Rank, c.Alpha, c.InvocationTokens
	return c, nil
}

// checkAdapter compares the settings with those that belong to the adapter, which has
// its factors by now.
func (c peftConfig) checkAdapter(a *Adapter) error {
	own, other := reflect.ValueOf(c), reflect.ValueOf(newPEFTConfig(a))
	for i := range own.NumField() {
		got, err := encodeJSON(own.Field(i).Interface(), "")
		want, err2 := encodeJSON(other.Field(i).Interface(), "")
		if err := errors.Join(err, err2); err != nil {
			panic(err) // only a non-finite number, which JSON cannot have held
		}
		if !bytes.Equal(got, want) {
			return Corruptf("%s: got %.200s, want %.200s", own.Type().Field(i).Tag.Get("json"), bytes.TrimSpace(got), bytes.TrimSpace(want))
		}
	}
	return nil
}

// peftBlock is the part of a transformer layer that a module lies in.
func peftBlock(module string) string {
	if module == "gate_proj" || module == "up_proj" || module == "down_proj" || strings.HasPrefix(module, "experts.") {
		return "mlp"
	}
	return "self_attn"
}

const peftPrefix = "base_model.model.model.layers."

// peftName is PEFT's name of a LoRA tensor; factor is 'A' or 'B'.
func peftName(k LoRAKey, factor byte) string {
	return fmt.Sprintf("%s%d.%s.%s.lora_%c.weight", peftPrefix, k.Layer, peftBlock(k.Module), k.Module, factor)
}

// parsePEFTName is the inverse of peftName; ok is false for any other name.
func parsePEFTName(name string) (key LoRAKey, factor byte, ok bool) {
	parts := strings.Split(strings.TrimPrefix(name, peftPrefix), ".")
	if len(parts) < 5 {
		return key, 0, false
	}
	layer, err := strconv.Atoi(parts[0])
	if err != nil || layer < 0 {
		return key, 0, false
	}
	key = LoRAKey{Layer: layer, Module: strings.Join(parts[2:len(parts)-2], ".")}
	for _, factor := range []byte("AB") {
		if peftName(key, factor) == name { // settles block, prefix, suffix and "007"
			return key, factor, true
		}
	}
	return key, 0, false
}
