package tokenizer

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"glimpse/internal/atomicfile"
)

// saveJSON writes v into a folder, under the name that sugarme's models use:
// prefix-name if there is a prefix.
func saveJSON(dir, name string, prefix []string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("tokenizer: save %s: %w", name, err)
	}
	return saveBytes(dir, name, prefix, data)
}

func saveBytes(dir, name string, prefix []string, data []byte) error {
	if len(prefix) > 0 && prefix[0] != "" {
		name = prefix[0] + "-" + name
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, name), data); err != nil {
		return fmt.Errorf("tokenizer: save %s: %w", name, err)
	}
	return nil
}
