package simd

//go:generate go run -tags avo ./gen -part product -out product_amd64.s -stubs product_amd64.go -pkg simd
//go:generate go run -tags avo ./gen -part vector -out vector_amd64.s -stubs vector_amd64.go -pkg simd
//go:generate go run -tags avo ./gen -part blocks -out blocks_amd64.s -stubs blocks_amd64.go -pkg simd
//go:generate go run ./gen/neon
