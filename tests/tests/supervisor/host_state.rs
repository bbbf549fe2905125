crate::cases![];
