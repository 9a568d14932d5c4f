package modeltest

import (
	"encoding/binary"
	"encoding/json"
	"slices"
)

// Safetensors is a file of tensors of any type of safetensors, those that checkpoints do not write among them.
type Safetensors struct {
	header  map[string]any
	payload []byte
}

// Put adds a tensor.
func (s *Safetensors) Put(name, dtype string, data []byte, shape ...int) {
	if s.header == nil {
		s.header = map[string]any{}
	}
	s.header[name] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": []int{len(s.payload), len(s.payload) + len(data)}}
	s.payload = append(s.payload, data...)
}

// Bytes is the file.
func (s *Safetensors) Bytes() []byte {
	text, err := json.Marshal(s.header)
	if err != nil {
		panic(err)
	}
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text, s.payload)
}
