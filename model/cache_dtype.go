package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// CacheDTypeUsage is the help of flags that take what SetCacheDType does.
var CacheDTypeUsage = "type of cached keys and values: auto, float32, bf16, on a processor also " + strings.Join(cacheBlocks(), ", ")

// cacheBlocks are the names of the formats of blocks that a cache can have.
func cacheBlocks() (names []string) {
	for _, f := range formats.Cached() {
		names = append(names, f.CacheName())
	}
	return append(names, kivi)
}

// kivi is the name of caches in the groups of kernels.KIVIKeys.
const kivi = "kivi4"

// CacheDType is the type of the keys and values of caches.
func (m *Model) CacheDType() kernels.DType {
	return cmp.Or(m.cacheDType, m.Backend.Compute())
}

// CheckCacheDType refuses what SetCacheDType does, before a model is there.
func CheckCacheDType(name string) error {
	switch name {
	case "", "auto", "float32", "bf16", "bfloat16":
		return nil
	}
	if blocks := cacheBlocks(); !slices.Contains(blocks, name) {
		return fmt.Errorf("cache dtype: got %q, want auto, float32, bf16, %s", name, strings.Join(blocks, ", "))
	}
	return nil
}

// CheckExact refuses a type of caches that rounds what is to be exact.
func CheckExact(exact bool, cacheDType string) error {
	switch cacheDType {
	case "", "auto", "float32":
		return nil
	}
	if exact {
		return fmt.Errorf("exact arithmetic: cache dtype: got %q, want auto or float32", cacheDType)
	}
	return nil
}

// SetCacheDType settles the type of the caches that are made from now on: "float32"
// (which "" means, too), the type that the device computes in; "bf16" or "bfloat16",
// which takes half the memory and on a GPU lets prefill attention run on tensor
// cores; "auto", which is bf16 on a GPU where the weights are bf16, since such
// models are trained and served with caches of that type, and otherwise float32; or on
// a processor blocks of 32 numbers with a scale, "q8_0" (8.5 bits a number), "q5_1", "q5_0",
// "q4_1" (5 bits), "q4_0" (4.5) and "fp8" (e4m3, 8.25), or "kivi4" (5, but for the newest 32 to 63 tokens), for models whose heads are whole blocks.
func (m *Model) SetCacheDType(name string) error {
	if err := CheckCacheDType(name); err != nil {
		return err
	}
	dtype := kernels.Invalid
	switch name {
	case "", "float32":
	case "bf16", "bfloat16":
		dtype = kernels.BF16
	case "auto":
		if m.Backend.Name() == "cuda" && m.Network.Layers[m.Config.FirstAttention()].Linear(KProj).Weight.DType.Numbers() == kernels.BF16 {
			dtype = kernels.BF16
		}
	default:
		var err error
		if dtype, err = m.blockCache(name); err != nil {
			return err
		}
	}
	m.cacheDType, m.cacheName = dtype, name
	m.keys = m.newKeyRounding()
	return nil
}

// CacheDTypeName is what SetCacheDType calls the type of the caches.
func (m *Model) CacheDTypeName() string {
	switch d := m.CacheDType(); {
	case d == kernels.KIVIKeys:
		return kivi
	case d == kernels.F32:
		return "float32"
	default:
		if f, ok := d.Format(); ok {
			return f.CacheName()
		}
		return strings.ToLower(d.String())
	}
}

// blockCache is the type of caches of one of cacheBlocks, where the model and its device take it.
func (m *Model) blockCache(name string) (kernels.DType, error) {
	dtype, elems := kernels.KIVIKeys, 32
	if name != kivi {
		f := formats.Cached()[slices.Index(cacheBlocks(), name)]
		dtype, _ = kernels.ParseStored(f.Name)
		elems = f.Elems
	}
	if m.Backend.Traits().Device {
		return 0, fmt.Errorf("cache dtype: got %q, want auto, float32 or bf16 on device %s", name, m.Backend.Device())
	}
	for l := range m.Config.Layers {
		if dim := m.Config.KV(l).Dim; dim%elems != 0 {
			return 0, fmt.Errorf("cache dtype: got %q, whose blocks have %d numbers, want float32 or bf16 for heads of %d", name, elems, dim)
		}
	}
	return dtype, nil
}
