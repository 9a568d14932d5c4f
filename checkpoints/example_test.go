package checkpoints_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"glimpse/checkpoints"
)

// An adapter of two learned rows for a model with hidden size 3 is exported, read
// back, and refused for another base model.
func Example() {
	folder, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "adapter")

	err = checkpoints.WriteAdapter(path, &checkpoints.Adapter{
		Kind:          "judgeq",
		Base:          checkpoints.BaseModel{Name: "small", SHA256: strings.Repeat("ab", 32)},
		Embeddings:    checkpoints.Matrix{Rows: 2, Cols: 3, Data: []float32{1, 2, 3, 4, 5, 6}},
		Loss:          "mse",
		PoolingKernel: 1,
		Training:      json.RawMessage(`{"steps": 100}`),
	}, false)
	if err != nil {
		panic(err)
	}
	a, err := checkpoints.ReadAdapter(path)
	if err != nil {
		panic(err)
	}
	fmt.Println(a.Kind, a.Embeddings.Rows, a.Embeddings.Cols, string(a.Training))
	fmt.Println(errors.Is(a.CheckBase("large", strings.Repeat("cd", 32)), checkpoints.ErrWrongBase))
	// Output:
	// judgeq 2 3 {"steps":100}
	// true
}
