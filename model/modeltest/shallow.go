package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/model"
	"glimpse/model/builtin"
)

// OpenShallow opens the first layers of the built-in model on the named device, with its
// embeddings, its head and its tokenizer, and closes it with the test. It takes the built-in
// model's prompts at a fraction of its cost, and its answers mean nothing.
func OpenShallow(t testing.TB, device string, layers int) *model.Model {
	t.Helper()
	folder, err := shallow(builtin.FS(), layers)
	if err != nil {
		t.Fatal(err)
	}
	return OpenFolder(t, folder, device)
}

func shallow(whole fs.FS, layers int) (fs.FS, error) {
	out := fstest.MapFS{}
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"} {
		data, err := fs.ReadFile(whole, name)
		if err != nil {
			return nil, err
		}
		out[name] = &fstest.MapFile{Data: data, Mode: 0o644}
	}
	var config map[string]any
	if err := json.Unmarshal(out["config.json"].Data, &config); err != nil {
		return nil, err
	}
	config["num_hidden_layers"] = layers
	var err error
	if out["config.json"].Data, err = json.Marshal(config); err != nil {
		return nil, err
	}
	weights, err := checkpoints.ParseSafetensors("model.safetensors", out["model.safetensors"].Data)
	if err != nil {
		return nil, err
	}
	var kept []checkpoints.TensorView
	for _, name := range weights.Names() {
		var layer int
		if strings.HasPrefix(name, "model.layers.") {
			if _, err := fmt.Sscanf(name, "model.layers.%d.", &layer); err != nil {
				return nil, err
			}
		}
		if layer >= layers {
			continue
		}
		tensor, err := weights.Tensor(name)
		if err != nil {
			return nil, err
		}
		kept = append(kept, tensor)
	}
	var file bytes.Buffer
	if err := checkpoints.WriteSafetensors(&file, kept, map[string]string{"format": "pt"}); err != nil {
		return nil, err
	}
	out["model.safetensors"].Data = file.Bytes()
	return out, nil
}
