package model

import (
	"fmt"

	"glimpse/kernels"
)

// CacheDTypeUsage is the help of flags that take what SetCacheDType does.
const CacheDTypeUsage = "type of cached keys and values: float32, bf16, or auto (bf16 on a GPU if the weights are, else float32)"

// CacheDType is the type of the keys and values of caches.
func (m *Model) CacheDType() kernels.DType {
	if m.cacheDType == kernels.Invalid {
		return m.Backend.Compute()
	}
	return m.cacheDType
}

// CheckCacheDType refuses what SetCacheDType does, before a model is there.
func CheckCacheDType(name string) error {
	switch name {
	case "", "auto", "float32", "bf16", "bfloat16":
		return nil
	}
	return fmt.Errorf("cache dtype: got %q, want auto, float32 or bf16", name)
}

// SetCacheDType settles the type of the caches that are made from now on: "float32"
// (which "" means, too), the type that the device computes in; "bf16" or "bfloat16",
// which takes half the memory and on a GPU lets prefill attention run on tensor
// cores; or "auto", which is bf16 on a GPU where the weights are bf16, since such
// models are trained and served with caches of that type, and otherwise float32.
func (m *Model) SetCacheDType(name string) error {
	if err := CheckCacheDType(name); err != nil {
		return err
	}
	m.cacheDType, m.cacheName = kernels.Invalid, name
	switch name {
	case "bf16", "bfloat16":
		m.cacheDType = kernels.BF16
	case "auto":
		if m.Backend.Name() == "cuda" && m.Network.Layers[0].Linear(KProj).Weight.DType == kernels.BF16 {
			m.cacheDType = kernels.BF16
		}
	}
	return nil
}
